// Client of the TypeScript SDK v2: node sdk2.mjs URL JOB [auto]. With "auto" it
// negotiates 2026-07-28, else it speaks 2025-11-25. Prints one JSON object.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { job } from './job.mjs';

const [url, calls, mode] = process.argv.slice(2);
const client = new Client({ name: 'ts-sdk-v2', version: '1' }, { capabilities: {}, ...(mode ? { versionNegotiation: { mode } } : {}) });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
console.log(JSON.stringify(await job(client, JSON.parse(calls), params => client.callTool(params))));
await client.close();
