// Connects the scenario in Python to a JavaScript client.
//
// Reads {"id", "call", "args"} per line and answers each with {"id", "value"} or {"id", "refused"}. A call that returns a
// stream answers with any number of {"id", "event"}, then {"id", "end"}; {"cut": id} closes it from the other side.

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [folder, binding, version, url] = process.argv.slice(2);

/** Packages live where they were installed, not beside these files. */
export const load = createRequire(`${folder}/`);

export async function serve(connect) {
  const calls = await connect(binding, version, url);
  const streams = new Map();
  say({ ready: true });
  for await (const line of createInterface({ input: process.stdin })) {
    const { id, call, args, cut } = JSON.parse(line);
    if (cut !== undefined) streams.get(cut)?.abort();
    else answer(calls[call], id, args, streams);
  }
  process.exit(0);
}

async function answer(call, id, args, streams) {
  const abort = new AbortController();
  streams.set(id, abort);
  try {
    const given = call(...args, abort.signal);
    if (given[Symbol.asyncIterator]) {
      for await (const event of given) say({ id, event });
      say({ id, end: true });
    } else {
      say({ id, value: (await given) ?? null });
    }
  } catch (error) {
    say(abort.signal.aborted ? { id, end: true } : { id, refused: name(error) });
  } finally {
    streams.delete(id);
  }
}

/**
 * What a caller of the SDK has to tell errors by: the name. A fault of a stream wraps the error that the server sent.
 * Where the SDK has no name for a status of gRPC, the words of the server are left, and 0.3 has the name in them.
 */
function name(error) {
  if (error.cause) return name(error.cause);
  if (typeof error.details === 'string') return error.details.split(':')[0];
  return error.name === 'Error' ? error.constructor.name : error.name;
}

function say(what) {
  process.stdout.write(JSON.stringify(what) + '\n');
}
