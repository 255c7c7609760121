// What a client of either TypeScript SDK needs to sign a person in: a callback
// on loopback and a memory. "open <url>" on standard output asks the test to be
// the browser. After each line "go" on standard input the job is done once,
// with "result <json>" or "error <text>" as the answer. The environment may say
// who the client is: CLIENT_DOCUMENT, the address of its metadata document, or
// CLIENT_INFORMATION, what it was given beforehand; without both it registers.
import http from 'node:http';
import readline from 'node:readline';

export async function signIn(url, calls, { connect, Unauthorized, finish, job }) {
  let answered = () => {};
  const server = http.createServer((req, res) => {
    const u = new URL(req.url, 'http://127.0.0.1');
    res.end('thank you');
    if (u.pathname === '/callback') answered(u.searchParams);
  });
  await new Promise(done => server.listen(0, '127.0.0.1', done));
  const redirectUrl = `http://127.0.0.1:${server.address().port}/callback`;
  const kept = {};
  if (process.env.CLIENT_INFORMATION) kept.client = JSON.parse(process.env.CLIENT_INFORMATION);
  const provider = {
    redirectUrl,
    clientMetadataUrl: process.env.CLIENT_DOCUMENT || undefined,
    clientMetadata: { client_name: 'TypeScript client', redirect_uris: [redirectUrl], grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'], token_endpoint_auth_method: 'none' },
    state: () => 'state-of-the-client',
    clientInformation: () => kept.client,
    saveClientInformation: v => { kept.client = v; },
    tokens: () => kept.tokens,
    saveTokens: v => { kept.tokens = v; },
    codeVerifier: () => kept.verifier,
    saveCodeVerifier: v => { kept.verifier = v; },
    discoveryState: () => kept.discovery,
    saveDiscoveryState: v => { kept.discovery = v; },
    invalidateCredentials: scope => {
      if (scope === 'all' || scope === 'tokens') delete kept.tokens;
      if (scope === 'all' || scope === 'client') {
        if (process.env.CLIENT_INFORMATION) throw new Error('the client given beforehand was refused');
        delete kept.client;
      }
    },
    redirectToAuthorization: u => {
      kept.answer = new Promise(done => { answered = done; });
      console.log(`open ${u}`);
    },
  };
  let client;
  const once = async () => {
    for (let i = 0; ; i++) {
      const transport = () => connect(new URL(url), provider);
      let made;
      try {
        if (!client) {
          const [c, t] = transport();
          made = t;
          await c.connect(t);
          client = c;
        }
        return await job(client, calls, p => client.callTool(p));
      } catch (e) {
        if (!(e instanceof Unauthorized) || i === 2) throw e;
        const params = await kept.answer;
        if (params.get('state') !== 'state-of-the-client') throw new Error('the state came back changed');
        await finish(made ?? transport()[1], params);
        client = undefined;
      }
    }
  };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line !== 'go') break;
    try {
      console.log(`result ${JSON.stringify({ ...(await once()), token: kept.tokens?.access_token, iss: kept.client?.issuer })}`);
    } catch (e) {
      console.log(`error ${String(e?.stack ?? e).replaceAll('\n', ' | ')}`);
    }
  }
  process.exit(0);
}
