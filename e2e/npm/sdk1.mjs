// Client of the TypeScript SDK v1: node sdk1.mjs URL JOB. Prints one JSON object.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { job } from './job.mjs';

const [url, calls] = process.argv.slice(2);
const client = new Client({ name: 'ts-sdk-v1', version: '1' }, { capabilities: {} });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
console.log(JSON.stringify(await job(client, JSON.parse(calls), params => client.callTool(params))));
await client.close();
