// A webhook receiver with @a2a-js/sdk 1.3.0; see receiver.py for its output.

import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const [folder, keys, card] = process.argv.slice(2);
const load = createRequire(`${folder}/`);
const { AgentCard, StreamResponse, taskStateToJSON, verifyAgentCardSignature } = load('sdk10');
const jose = load('jose');

// Output of libraries must not mix with our lines.
for (const name of ['log', 'info', 'debug']) console[name] = console.error;

const read = async (url) => (await fetch(url)).json();
const say = (what) => process.stdout.write(JSON.stringify(what) + '\n');

if (card) {
  const verify = verifyAgentCardSignature(async (kid) => (await read(keys)).keys.find((key) => key.kid === kid));
  const seen = AgentCard.fromJSON(await read(card));
  await verify(seen);
  const changed = await verify({ ...seen, description: `${seen.description}!` }).then(() => true, () => false);
  say(changed ? { error: 'a changed card verifies' } : { card: seen.name });
}

const server = createServer(async (request, answer) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const body = Buffer.concat(pieces);
  try {
    const token = request.headers.authorization.replace(/^Bearer /, '');
    const { payload: claims } = await jose.jwtVerify(token, jose.createRemoteJWKSet(new URL(keys)), {
      audience: url, requiredClaims: ['iss', 'iat', 'exp', 'jti'],
    });
    if (claims.request_body_sha256 !== createHash('sha256').update(body).digest('hex')) throw new Error('another body');
    const { $case, value } = StreamResponse.fromJSON(JSON.parse(body)).payload;
    const state = value.status ? taskStateToJSON(value.status.state) : null;
    say({ kind: $case, task: $case === 'task' ? value.id : value.taskId, state });
    answer.writeHead(200).end();
  } catch (fault) {
    say({ error: String(fault) });
    answer.writeHead(400).end();
  }
});
let url;
server.listen(0, '127.0.0.1', () => {
  url = `http://127.0.0.1:${server.address().port}/hook`;
  say({ listening: url });
});
