// The issuer of the tests: oidc-provider, whose clients have the names of users. A token is requested with grant
// `client_credentials` and a resource, which names audience, algorithm and lifetime.
//
//     node issuer.js MODULES CONFIGURATION
//
// MODULES is the folder in which `npm ci` was run. CONFIGURATION is a file with port, certificate, key, keys (a file, which
// is made if it is missing), users (name → {secret, groups}) and resources (name → {audience, algorithm, lifetime_s}).

import { generateKeyPairSync } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:https';
import { pathToFileURL } from 'node:url';

const [modules, file] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(createRequire(`${modules}/`).resolve('oidc-provider')));
const configuration = JSON.parse(readFileSync(file));
const { port, users, resources } = configuration;

const KINDS = {
  RS256: ['rsa', { modulusLength: 2048 }],
  ES256: ['ec', { namedCurve: 'P-256' }],
  EdDSA: ['ed25519', {}],
};

function newKey([alg, kind]) {
  const jwk = generateKeyPairSync(...kind).privateKey.export({ format: 'jwk' });
  return { ...jwk, alg, use: 'sig', kid: `${alg}-${Date.now()}` };
}

if (!existsSync(configuration.keys)) {
  writeFileSync(configuration.keys, JSON.stringify({ keys: Object.entries(KINDS).map(newKey) }), { mode: 0o600 });
}

const provider = new Provider(`https://localhost:${port}`, {
  jwks: JSON.parse(readFileSync(configuration.keys)),
  clients: Object.entries(users).map(([name, { secret }]) => ({
    client_id: name,
    client_secret: secret,
    grant_types: ['client_credentials'],
    redirect_uris: [],
    response_types: [],
  })),
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => {
        const { audience, algorithm, lifetime_s: lifetime } = resources[resource];
        return {
          scope: '',
          audience,
          accessTokenTTL: lifetime,
          accessTokenFormat: 'jwt',
          jwt: { sign: { alg: algorithm } },
        };
      },
    },
  },
  extraTokenClaims: (_, token) => ({ groups: users[token.clientId].groups }),
});

const tls = { cert: readFileSync(configuration.certificate), key: readFileSync(configuration.key) };
createServer(tls, provider.callback()).listen(port, '127.0.0.1');
