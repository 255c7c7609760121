// Client of the TypeScript SDK v2 that signs in: node oauth2.mjs URL JOB [auto].
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import { job } from './job.mjs';
import { signIn } from './oauth.mjs';

const [url, calls, mode] = process.argv.slice(2);
await signIn(url, JSON.parse(calls), {
  connect: (u, authProvider) => [new Client({ name: 'ts-sdk-v2', version: '1' }, { capabilities: {}, ...(mode ? { versionNegotiation: { mode } } : {}) }), new StreamableHTTPClientTransport(u, { authProvider })],
  Unauthorized: UnauthorizedError,
  finish: (transport, params) => transport.finishAuth(params),
  job,
});
