// A company IdP for tests: oidc-provider on a free loopback port.
// Settings come as JSON in the first argument:
//   redirects: redirect URIs of the confidential client "portal"
//   conform:   true keeps groups out of ID tokens (userinfo only)
//   keys:      public keys by which "portal" proves itself, in place of its secret
//   cimd:      true takes client metadata documents in place of registration
//   fetch:     origins by origin: where documents are fetched from instead
// POST /withdraw ends all grants: no refresh token is good after it.
// Prints "idp ready <issuer>" once it serves, and ends when standard input does.
import http from 'node:http';
import crypto from 'node:crypto';
import { Provider } from 'oidc-provider';

const settings = JSON.parse(process.argv[2] ?? '{}');
const people = new Map([
  ['alice', { name: 'Alice Example', email: 'alice@corp.test', groups: ['eng', 'mcp-users'] }],
  ['bob', { name: 'Bob Example', email: 'bob@corp.test', groups: ['sales', 'mcp-users'] }],
  ['mallory', { name: 'Mallory Example', email: 'mallory@corp.test', groups: [] }],
]);

const server = http.createServer();
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const issuer = `http://127.0.0.1:${server.address().port}`;

const signing = crypto.generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });

// Where the addresses of clients lead on this machine.
const elsewhere = (url) => {
  const u = new URL(url);
  return settings.fetch?.[u.origin] ? settings.fetch[u.origin] + u.pathname : url;
};

const provider = new Provider(issuer, {
  // Its own client would refuse addresses on this machine.
  fetch: (url, { dispatcher, ...options }) => globalThis.fetch(elsewhere(url), options),
  jwks: { keys: [{ ...signing, kid: 'test-1', use: 'sig', alg: 'RS256' }] },
  cookies: { keys: [crypto.randomUUID()] },
  clients: [
    {
      client_id: 'portal',
      client_secret: 'portal-secret-of-the-test-idp',
      redirect_uris: settings.redirects?.length ? settings.redirects : ['http://127.0.0.1/auth/callback'],
      application_type: 'native', // loopback redirect URIs
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      ...(settings.keys
        ? { token_endpoint_auth_method: 'private_key_jwt', jwks: { keys: settings.keys }, client_secret: undefined }
        : { token_endpoint_auth_method: 'client_secret_basic' }),
    },
    {
      client_id: 'cli',
      redirect_uris: ['http://127.0.0.1/cb'],
      application_type: 'native',
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
    },
  ],
  scopes: ['openid', 'offline_access', 'profile', 'email', 'groups'],
  claims: { openid: ['sub'], profile: ['name'], email: ['email'], groups: ['groups'] },
  conformIdTokenClaims: settings.conform === true,
  pkce: { required: () => true },
  findAccount(_, id) {
    const person = people.get(id);
    return person && { accountId: id, claims: () => ({ sub: id, ...person }) };
  },
  extraTokenClaims: (_, token) => ({ groups: people.get(token.accountId)?.groups ?? [] }),
  interactions: { url: (_, interaction) => `/sign-in/${interaction.uid}` },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: settings.cimd !== true },
    clientIdMetadataDocument: { enabled: settings.cimd === true, ack: 'draft-02' },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: (ctx) => ctx.oidc?.params?.resource,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => ({
        audience: resource,
        scope: 'openid profile email groups',
        accessTokenFormat: 'jwt',
        accessTokenTTL: 300,
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
  ttl: { AccessToken: 300, IdToken: 300, Interaction: 600, Session: 3600, Grant: 3600 },
});

const grants = new Set();
provider.on('grant.success', (ctx) => grants.add(ctx.oidc.entities.Grant?.jti));
provider.use(async (ctx, next) => {
  if (ctx.path !== '/withdraw') return next();
  for (const id of grants) {
    if (!id) continue;
    await provider.RefreshToken.revokeByGrantId(id);
    await (await provider.Grant.find(id))?.destroy();
  }
  grants.clear();
  ctx.body = 'done';
});

// One form stands for the whole sign-in: whoever is named is signed in and
// has consented. "deny" refuses.
provider.use(async (ctx, next) => {
  if (!ctx.path.startsWith('/sign-in/')) return next();
  const { params, grantId } = await provider.interactionDetails(ctx.req, ctx.res);
  if (ctx.method !== 'POST') {
    ctx.type = 'html';
    ctx.body = '<!doctype html><title>Test IdP</title><form method="post"><input name="login"><button>Sign in</button></form>';
    return;
  }
  let body = '';
  for await (const chunk of ctx.req) body += chunk;
  const login = new URLSearchParams(body).get('login');
  ctx.respond = false;
  if (login === 'deny' || !people.has(login)) {
    await provider.interactionFinished(ctx.req, ctx.res, { error: 'access_denied', error_description: 'The test IdP refused <b>this</b> sign-in' });
    return;
  }
  const grant = (grantId && await provider.Grant.find(grantId)) || new provider.Grant({ accountId: login, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  for (const resource of [params.resource ?? []].flat()) grant.addResourceScope(resource, 'openid profile email groups');
  await provider.interactionFinished(ctx.req, ctx.res, { login: { accountId: login }, consent: { grantId: await grant.save() } });
});

server.on('request', provider.callback());
process.stdin.on('end', () => process.exit(0)).resume();
console.log(`idp ready ${issuer}`);
