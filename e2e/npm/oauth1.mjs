// Client of the TypeScript SDK v1 that signs in: node oauth1.mjs URL JOB.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { job } from './job.mjs';
import { signIn } from './oauth.mjs';

const [url, calls] = process.argv.slice(2);
await signIn(url, JSON.parse(calls), {
  connect: (u, authProvider) => [new Client({ name: 'ts-sdk-v1', version: '1' }, { capabilities: {} }), new StreamableHTTPClientTransport(u, { authProvider })],
  Unauthorized: UnauthorizedError,
  finish: (transport, params) => transport.finishAuth(params.get('code')),
  job,
});
