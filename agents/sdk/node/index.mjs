// Agents in JavaScript and TypeScript for `attache serve agent.mjs`. Needs Node 20.6 and no other package.
//
//     import { agent } from "@attache/agent";
//
//     agent(async function* count(turn) {
//       yield `${turn.text.split(/\s+/).length} words`;
//     }, { description: "Counts the words of a message" });
//
// The function is an async generator, a generator or a function. Generators yield text, which streams; functions return it.

import { writeSync } from "node:fs";
import { createInterface } from "node:readline";

const PROTOCOL = 1;

/** Fails the task. The message is for the caller. */
export class Failed extends Error {}

/** Declines the task. The message is for the caller. */
export class Rejected extends Error {}

/** Marker of the end of a turn, returned by `turn.ask` and `turn.reply`. Later output is ignored. */
const END = Symbol("end of turn");

/** One message of a task. */
export class Turn {
  #id;
  #hasEnded = false;
  #controller = new AbortController();

  constructor(line) {
    this.#id = line.turn;
    /** Text of the message. Files are described. */
    this.text = line.text;
    /** The message in the JSON form of A2A 1.0. */
    this.message = line.message;
    /** The task with its history, in the JSON form of A2A 1.0. */
    this.task = line.task;
    /** Id of the task. */
    this.taskId = line.task.id;
    /** Id of the conversation. It differs between callers. */
    this.contextId = line.contextId;
    /** The authenticated caller. */
    this.caller = line.caller;
    /** Tenant of the call, or "". */
    this.tenant = line.tenant;
    /** Attempt number, starting at 1. More than 1 after a restart of the server. */
    this.attempt = line.attempt;
    /** Value given to `ask` as `remember` if this message answers that question. */
    this.memory = line.memory;
    /** Trace context for outgoing calls, as in the header of the same name. */
    this.traceparent = line.traceparent;
    /** Aborts when the caller cancels the task. Pass it to fetch. */
    this.signal = this.#controller.signal;
  }

  /** Whether the caller has canceled the task. */
  get cancelled() {
    return this.signal.aborted;
  }

  /** Streams text. The same as to yield it. */
  write(text) {
    this.#send({ text });
  }

  /** Sets the status message of the working task. */
  progress(message) {
    this.#send({ message });
  }

  /** Adds an artifact: text, data (a JSON value) or file (bytes). */
  artifact(name, { text, data, file, filename, mediaType } = {}) {
    const part = text !== undefined ? { text }
      : file !== undefined ? { raw: Buffer.from(file).toString("base64"), filename: filename ?? name }
      : { data };
    if (mediaType) part.mediaType = mediaType;
    this.#send({ artifact: { name, parts: [part] } });
  }

  /** Adds to the metadata of the task. */
  metadata(members) {
    this.#send({ metadata: members });
  }

  /** Ends the turn with a question. The answer is the next turn: it runs the function again. */
  ask(question, { remember, request } = {}) {
    return this._end({ question, remember, request });
  }

  /** Completes the task with this final message. */
  reply(text) {
    return this._end({ reply: text });
  }

  #send(line) {
    if (!this.#hasEnded) write({ turn: this.#id, ...line });
  }

  /** Ends the turn. */
  _end(line) {
    this.#send(line);
    this.#hasEnded = true;
    return END;
  }

  /** Handles a yielded or returned value. Returns whether the turn has ended. */
  _emit(value) {
    if (value !== undefined && value !== null && value !== END) {
      this.write(typeof value === "string" ? value : JSON.stringify(value));
    }
    return this.#hasEnded;
  }

  _cancel() {
    this.#controller.abort();
  }
}

let isRegistered = false;

/** Makes a function the agent of this file, and runs it until the server closes stdin. */
export function agent(run, { name, description, skills } = {}) {
  if (isRegistered) throw new TypeError("a file has one agent");
  isRegistered = true;
  const turns = new Map();
  // Output of the agent's code must not mix with the protocol: console.log goes to stderr, which the server logs.
  process.stdout.write = process.stderr.write.bind(process.stderr);
  write({ hello: { protocol: PROTOCOL, name, description, skills } });
  const lines = createInterface({ input: process.stdin, crlfDelay: Infinity });
  lines.on("line", (text) => {
    const line = JSON.parse(text);
    if (line.turn !== undefined) {
      const turn = new Turn(line);
      turns.set(line.turn, turn);
      runTurn(run, turn).finally(() => turns.delete(line.turn));
    } else if (line.cancel !== undefined) {
      turns.get(line.cancel)?._cancel();
    } else if (line.ping !== undefined) {
      write({ pong: line.ping });
    }
  });
  // The server has closed stdin: its turns have ended.
  lines.on("close", () => process.exit(0));
}

async function runTurn(run, turn) {
  try {
    await call(run, turn);
    turn._end({ state: "completed" });
  } catch (error) {
    if (error instanceof Rejected) {
      turn._end({ state: "rejected", message: error.message });
    } else if (error instanceof Failed) {
      turn._end({ state: "failed", message: error.message });
    } else if (turn.cancelled) {
      turn._end({ state: "failed", message: "canceled" });
    } else {
      console.error(error);
      // Its text may hold secrets. The log has it.
      turn._end({ state: "failed", message: `the agent failed: ${error?.name ?? "Error"}` });
    }
  }
}

/** Runs the function. Stops at a cancel, also while it waits. */
async function call(run, turn) {
  const cancelled = new Promise((_, reject) => {
    turn.signal.addEventListener("abort", () => reject(new Failed("canceled")), { once: true });
  });
  cancelled.catch(() => {});
  const result = run(turn);
  if (typeof result?.next !== "function") {
    turn._emit(await Promise.race([result, cancelled]));
    return;
  }
  try {
    for (;;) {
      const { done, value } = await Promise.race([result.next(), cancelled]);
      if (turn._emit(value) || done) return;
    }
  } finally {
    // Does not wait: a generator that ignores the cancel must not keep its turn open.
    Promise.resolve(result.return?.()).catch(() => {});
  }
}

/** Writes a line of the protocol. Waits while the pipe is full. */
function write(line) {
  let data = Buffer.from(`${JSON.stringify(line)}\n`);
  while (data.length > 0) {
    try {
      data = data.subarray(writeSync(1, data));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}
