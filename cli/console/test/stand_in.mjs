// A stand-in of the admin API with the JSON of docs/internals/admin-api.md: any number of tasks, chosen roles and faults, and frames on
// command. It serves the files of the console with the policy of the real server, so that a test of a screen needs no other program.
import { readFileSync } from "node:fs";
import path from "node:path";
import { bodyOf, consoleFolder, listen } from "./harness.mjs";

const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob: data:; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const STATES = ["COMPLETED", "FAILED", "WORKING", "INPUT_REQUIRED", "CANCELED", "REJECTED", "AUTH_REQUIRED", "COMPLETED", "COMPLETED"];
const TITLES = [
  "Pay Ann 5 €",
  "Write a poem about the sea",
  "What is your name?",
  "How much do I owe Ann?",
  "Send the invoice 4711 to the accountant",
];
const CAUSE = "The bank refused the payment: insufficient funds on account 12";
const ENTRIES = 31;
const time = (ms) => new Date(ms).toISOString();
const isEnded = (state) => /COMPLETED|FAILED|CANCELED|REJECTED/.test(state);

/** Task number n. Its parts may be replaced. */
function makeTask(n, now) {
  const opened = now - n * 47_000 - 20_000;
  const state = `TASK_STATE_${STATES[n % STATES.length]}`;
  const id = `01a1e8fd-c12f-7c40-9d2e-${(0x5b0c21d70000 + n).toString(16)}`;
  const updated = time(opened + 8400);
  const usage = n % 2 ? { calls: 2, inputTokens: 1204, outputTokens: 212 } : null;
  return {
    id,
    agent: ["clerk", "demo", "editor"][n % 3],
    tenant: "",
    caller: ["key:ci", "anonymous", "jwt:acme|42"][n % 3],
    context: `${id.slice(0, 24)}5b0c21d7${(0xbb42 + (n >> 1)).toString(16)}`,
    title: TITLES[n % TITLES.length],
    state,
    opened: time(opened),
    updated,
    ended: isEnded(state) ? updated : null,
    entries: ENTRIES,
    turns: 2,
    waiting: null,
    parent: null,
    children: n % 7 ? 0 : 2,
    reason: state.endsWith("FAILED") ? "agent" : null,
    usage,
    trace: "4bf92f3577b34da6a3ce929d0e0e4736",
    webhooks: null,
  };
}

/** Entries of a task: a message, a turn with tools and chunks, the final status. */
function entriesOf(task) {
  const kinds = ["status", "tool-calls", "tool-started", "tool-result", "artifact", "artifact", "artifact"];
  const start = Date.parse(task.opened);
  return Array.from({ length: task.entries }, (_, index) => {
    const seq = index + 1;
    const at = time(start + seq * 260);
    const kind =
      seq === 1
        ? "created"
        : seq === 2
          ? "message"
          : seq === 3
            ? "turn-started"
            : seq === task.entries
              ? "turn-ended"
              : seq === task.entries - 1
                ? "status"
                : kinds[seq % 7];
    const isLast = seq === task.entries - 1;
    const words = isLast ? CAUSE : "working";
    const status = {
      state: isLast ? task.state : "TASK_STATE_WORKING",
      timestamp: at,
      message: { messageId: `s${seq}`, role: "ROLE_AGENT", parts: [{ text: words }] },
    };
    const bodies = {
      created: { id: task.id, contextId: task.context },
      message: { messageId: "m1", role: "ROLE_USER", parts: [{ text: task.title }] },
      "turn-started": {},
      "turn-ended": {},
      artifact: {
        artifact: { artifactId: "answer", name: "answer", parts: [{ text: `chunk ${seq} ` }] },
        append: seq > 8,
        lastChunk: seq > 25,
      },
    };
    const summaries = {
      message: task.title,
      status: words,
      "tool-calls": 'balance({"of":"me"})',
      "tool-started": "balance",
      "tool-result": 'balance → {"eur": 12}',
      artifact: `answer, chunk ${seq}`,
    };
    return {
      seq,
      time: at,
      kind,
      by: seq === 2 ? "caller" : "agent",
      summary: summaries[kind] ?? "",
      body: bodies[kind] ?? { status, metadata: null, step: kind === "status" ? null : { type: kind, name: "balance" } },
    };
  });
}

/** The fold of a task up to a position. */
function foldOf(task, at) {
  const isLast = at >= task.entries - 1;
  const answer = task.parts ?? [{ text: "You owe Ann 5 €." }, { data: { eur: 12, list: [1, 2, 3] } }];
  return {
    id: task.id,
    contextId: task.context,
    status: {
      state: isLast ? task.state : "TASK_STATE_WORKING",
      timestamp: task.updated,
      message: { messageId: "x", role: "ROLE_AGENT", parts: [{ text: isLast ? CAUSE : "working" }] },
    },
    history: [{ messageId: "m1", role: "ROLE_USER", parts: [{ text: task.title }] }],
    artifacts: at > 8 ? [{ artifactId: "answer", name: "answer", parts: answer }] : [],
  };
}

function spansOf(task, now) {
  const end = isEnded(task.state) ? "failed" : "ended";
  const lanes = [
    { lane: "turn", label: "Turn 1", spans: [{ from: 0, to: 6010, seq: [3, 15], state: "ended", attempt: 1 }] },
    { lane: "turn", label: "Turn 2", spans: [{ from: 7000, to: 8400, seq: [16, 31], state: end, attempt: 1 }] },
    {
      lane: "model",
      label: "model",
      spans: [
        { from: 10, to: 900, seq: [3, 9] },
        { from: 2400, to: 3900, seq: [10, 11] },
      ],
    },
    { lane: "tool", label: "balance", detail: '{"of":"me"}', spans: [{ from: 900, to: 1500, seq: [6, 7], state: "ended" }] },
    {
      lane: "tool",
      label: "pay",
      detail: '{"to":"Ann"}',
      spans: [{ from: 4100, to: task.ended ? 6010 : null, seq: [12], state: "waiting", kind: "approval" }],
    },
    {
      lane: "artifact",
      label: "answer",
      spans: Array.from({ length: 12 }, (_, n) => ({ from: 4000 + n * 300, to: 4000 + n * 300, seq: [13 + n], count: 8 })),
    },
    { lane: "message", label: "messages", spans: [{ from: 0, to: 0, seq: [2], by: "caller" }] },
  ];
  const states = [
    { state: "TASK_STATE_SUBMITTED", from: 0, seq: 1, by: "caller" },
    { state: "TASK_STATE_WORKING", from: 400, seq: 4, by: "agent" },
    { state: task.state, from: 8000, seq: task.entries - 1, by: "agent" },
  ];
  const gaps = task.ended ? [] : [{ from: 8400, to: now - Date.parse(task.opened) }];
  return { start: task.opened, now: now - Date.parse(task.opened), entries: task.entries, merged: false, lanes, states, gaps };
}

const agentOf = (name) => ({
  name,
  title: name[0].toUpperCase() + name.slice(1),
  description: "",
  path: `/agents/${name}/`,
  url: `http://127.0.0.1:41241/agents/${name}/`,
  origin: "http://127.0.0.1:41241",
  tenants: [],
  versions: ["1.0", "0.3"],
  interfaces: [],
  skills: [{ id: "pay", name: "Pay", description: "Transfers an amount", examples: ["Pay Ann 5 €"] }],
  draining: false,
  tasks: { open: 41, total: 512 },
  health: name === "editor" ? { state: "failing", reason: "connection refused (3 of 5 calls failed)" } : { state: "ok", reason: null },
});

/** The data of a stand-in. Tests change it. */
function makeState({ tasks: size = 60, role = "admin", features }) {
  const now = Date.now();
  const tasks = Array.from({ length: size }, (_, n) => makeTask(n, now));
  const item = (n, kind, more) => ({
    task: tasks[n % size].id,
    agent: "clerk",
    tenant: "",
    caller: "key:ci",
    context: "",
    title: tasks[n % size].title,
    kind,
    requestId: `r${n}`,
    position: ENTRIES,
    since: time(now - n * 60_000),
    expiresAt: null,
    prompt: "",
    tool: null,
    arguments: {},
    choices: [],
    schema: null,
    sensitive: false,
    answerable: true,
    path: [],
    previous: null,
    profile: "attache",
    ...more,
  });
  const hook = (number, state, more) => ({
    number,
    task: tasks[number % size].id,
    agent: "clerk",
    tenant: "",
    caller: "key:ci",
    config: "c",
    origin: "https://hooks.example.com",
    version: "1.0",
    hasToken: true,
    state,
    reason: null,
    delivered: 4,
    end: 9,
    failures: 0,
    nextAttempt: null,
    attempts: [],
    undelivered: [],
    ...more,
  });
  return {
    now,
    tasks,
    role,
    features: features ?? ["agents", "tasks", "inbox", "webhooks", "try", "events"],
    inbox: size
      ? [
          item(3, "approval", {
            prompt: 'May `pay` be called with {"to":"Ann","amount":5}?',
            tool: "pay",
            arguments: { to: "Ann", amount: 5 },
            expiresAt: time(now + 3_500_000),
            previous: { approved: 3, denied: 0, last: time(now - 172_800_000) },
          }),
          item(12, "question", { agent: "demo", prompt: "What is your name?", choices: ["Ann", "Bob"] }),
          item(6, "credentials", { prompt: "books needs a login: https://login.example/device code ABCD" }),
        ]
      : [],
    webhooks: size
      ? [
          hook(3, "failed", {
            reason: "HTTP 410",
            failures: 1,
            attempts: [
              { time: time(now - 170_000), seq: 5, outcome: "failed", status: 410, ms: 38, reason: "HTTP 410" },
              { time: time(now - 171_000), seq: 4, outcome: "delivered", status: 204, ms: 41 },
            ],
            undelivered: [5, 6, 7, 8, 9].map((seq) => ({ seq, eventId: `e${seq}`, time: time(now), kind: "status", summary: "working" })),
          }),
          hook(8, "retrying", {
            origin: "https://ci.example.org",
            version: "0.3",
            reason: "HTTP 503",
            failures: 3,
            delivered: 12,
            end: 13,
            nextAttempt: time(now + 240_000),
          }),
        ]
      : [],
    audit: [
      {
        number: 17,
        time: time(now - 60_000),
        operator: "key:ann",
        listener: "tcp",
        action: "inbox.answer",
        target: tasks[0]?.id ?? "",
        outcome: "ok",
        detail: "approved pay",
      },
    ],
    /** Calls that change something, in order. @type {{ method: string, path: string, body: any, headers: any }[]} */
    calls: [],
    /** Answer to every call but those of the session, if set. @type {null | { status: number, body: any }} */
    fault: null,
    isSignedIn: true,
    streams: new Set(),
    /** Resolved by the next stream. @type {((value: void) => void)[]} */
    waiting: [],
    opened: 0,
  };
}

/** Starts a stand-in. `emit` sends a frame to every open stream; `nextStream` waits until another one is opened. */
export async function startStandIn(options = {}) {
  const state = makeState(options);
  const admin = await listen((request, response) => handle(state, request, response));
  const emit = (event, data) => {
    state.opened += 1;
    for (const stream of state.streams) stream.write(`id: e.${state.opened}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  };
  const nextStream = () => new Promise((resolve) => state.waiting.push(resolve));
  return { admin, state, emit, nextStream, link: async () => `${admin}/console/#/login/token` };
}

async function handle(state, request, response) {
  const url = new URL(request.url, "http://stand-in");
  if (!url.pathname.startsWith("/api/v1")) return file(url.pathname, response);
  const body = JSON.parse((await bodyOf(request)) || "{}");
  const route = url.pathname.slice("/api/v1".length);
  const send = (value, status = 200, headers = {}) => {
    response.writeHead(status, { "Content-Type": "application/json", "Cache-Control": "no-store", ...headers });
    response.end(value === null ? "" : JSON.stringify(value));
  };
  const refuse = (status, code, message, more = {}) => send({ error: { code, message }, ...more }, status);
  if (route === "/session" && request.method === "POST") {
    if (body.key === "caller") return refuse(401, "invalid_key", "this key is not an operator key");
    state.isSignedIn = true;
    return send(session(state), 201, { "Set-Cookie": "attache_test=1; HttpOnly; SameSite=Strict" });
  }
  if (!state.isSignedIn || !/attache_test=1/.test(request.headers.cookie ?? "") || request.headers["attache-session"] !== "csrf")
    return refuse(401, "unauthenticated", "sign in first");
  if (route === "/session") return send(session(state));
  if (state.fault) return send(state.fault.body, state.fault.status, state.fault.status === 429 ? { "Retry-After": "1" } : {});
  if (request.method !== "GET") state.calls.push({ method: request.method, path: route, body, headers: request.headers });
  if (route === "/events") return stream(state, response);
  if (route === "/try/send") return tryStream(body, response);
  const answer = reply(state, route, url.searchParams, body);
  return answer ? send(answer.value, answer.status) : refuse(404, "not_found", `nothing is at ${route}`);
}

function file(name, response) {
  const relative = name.replace(/^\/console\/?/, "") || "index.html";
  try {
    const content = readFileSync(path.join(consoleFolder, path.normalize(`/${relative}`)));
    response.writeHead(200, { "Content-Type": TYPES[path.extname(relative)] ?? "text/plain", "Content-Security-Policy": POLICY });
    response.end(content);
  } catch {
    response.writeHead(404).end();
  }
}

const session = (state) => ({
  csrfToken: "csrf",
  operator: "key:ann",
  role: state.role,
  agents: null,
  tenants: null,
  expiresAt: time(state.now + 28_800_000),
  server: { name: "prod-eu", version: "0.1.0", content: "show", readOnly: false, features: state.features },
});

function stream(state, response) {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.write(": open\n\n");
  state.streams.add(response);
  response.on("close", () => state.streams.delete(response));
  for (const resolve of state.waiting.splice(0)) resolve();
}

function tryStream(body, response) {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  const write = (event, data) => response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  const task = "01a1e8fd-c12f-7c40-9d2e-5b0c21d70002";
  const update = (id, result) => write("event", { id, body: JSON.stringify({ jsonrpc: "2.0", id: 1, result }), ms: Number(id) });
  write("request", {
    method: "POST",
    url: "/agents/clerk/",
    headers: { Authorization: "••••", "content-type": "application/json", ...body.headers },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "SendStreamingMessage", params: { message: body.message } }),
  });
  write("response", { status: 200, headers: { "content-type": "text/event-stream" }, ms: 3 });
  update("1", { task: { id: task, contextId: "c", status: { state: "TASK_STATE_SUBMITTED" } } });
  update("2", { artifactUpdate: { taskId: task, artifact: { artifactId: "a", parts: [{ text: "Hel" }] } } });
  update("3", { artifactUpdate: { taskId: task, append: true, lastChunk: true, artifact: { artifactId: "a", parts: [{ text: "lo" }] } } });
  update("4", { statusUpdate: { taskId: task, status: { state: "TASK_STATE_COMPLETED" } } });
  write("end", { body: null, bytes: 412, ms: 1200, task, error: null });
  response.end();
}

function page(items, query) {
  const limit = Number(query.get("limit") ?? 50);
  const after = Number(query.get("after") ?? 0);
  return {
    items: items.slice(after, after + limit),
    next: after + limit < items.length ? String(after + limit) : null,
    total: { value: items.length, exact: true },
  };
}

/** The reply to a call, or null for an unknown path. */
function reply(state, route, query, body) {
  const ok = (value, status = 200) => ({ value, status });
  const [, kind, id, ...rest] = route.split("/").map(decodeURIComponent);
  if (route === "/server")
    return ok({
      name: "prod-eu",
      version: "0.1.0",
      startedAt: time(state.now - 273_600_000),
      now: time(state.now),
      ready: true,
      problems: [],
      store: { kind: "sqlite", durable: true },
      listeners: { agents: "127.0.0.1:41241", admin: "127.0.0.1:41242", tls: false },
      agents: 3,
      tasks: { open: 12, total: state.tasks.length },
      console: { content: "show", readOnly: false, streams: state.streams.size, sessions: 2 },
      features: [],
    });
  if (kind === "audit") return ok(page(state.audit, query));
  if (route === "/agents") return ok(page(["clerk", "demo", "editor"].map(agentOf), query));
  if (kind === "agents" && rest[0] === "card")
    return ok({
      name: id,
      protocolVersion: query.get("as"),
      url: agentOf(id).url,
      skills: [{ id: "pay" }],
      supportedInterfaces: [{ url: agentOf(id).url, protocolBinding: "JSONRPC" }],
    });
  if (kind === "inbox") return inbox(state, id, rest[0], query, ok);
  if (kind === "webhooks") return webhooks(state, id, rest[0], query, ok);
  if (kind === "jobs")
    return ok({
      id,
      action: "cancel",
      state: "ended",
      total: 9,
      done: 8,
      failed: 0,
      skipped: 1,
      results: [{ task: state.tasks[0].id, outcome: "skipped", detail: "the task had ended" }],
    });
  return kind === "tasks" ? tasks(state, id, rest, query, body, ok) : null;
}

function inbox(state, task, request, query, ok) {
  if (!task)
    return ok(
      page(
        state.inbox.filter((item) => !query.get("kind") || item.kind === query.get("kind")),
        query,
      ),
    );
  const index = state.inbox.findIndex((item) => item.task === task && item.requestId === request);
  if (index < 0)
    return {
      status: 409,
      value: {
        error: { code: "already_answered", message: "another operator has answered" },
        current: { answeredBy: "key:bob", answer: "yes", time: time(Date.now()) },
      },
    };
  state.inbox.splice(index, 1);
  return ok(state.tasks[0]);
}

function webhooks(state, id, action, query, ok) {
  if (id === "retry") return ok({ webhooks: 1, retried: query.get("dryRun") ? 0 : 1 });
  if (!id)
    return ok(
      page(
        state.webhooks.filter(
          (hook) => !["failed", "retrying", "active", "done"].includes(query.get("state")) || hook.state === query.get("state"),
        ),
        query,
      ),
    );
  const hook = state.webhooks.find((one) => String(one.number) === id);
  if (!hook) return null;
  if (action === "retry") Object.assign(hook, { state: "done", reason: null, delivered: 9, undelivered: [] });
  return ok(hook);
}

const shortState = (state) => state.replace("TASK_STATE_", "").toLowerCase().replaceAll("_", "-");

function tasks(state, id, rest, query, body, ok) {
  if (!id) {
    const states = query.getAll("state");
    const matches = state.tasks.filter(
      (task) =>
        (!states.length || states.includes(shortState(task.state))) &&
        ["agent", "caller", "context"].every((name) => !query.get(name) || task[name] === query.get(name)) &&
        (!query.get("text") || task.title.includes(query.get("text"))),
    );
    return ok(page(matches, query));
  }
  if (id === "counts") {
    const counts = Map.groupBy
      ? [...Map.groupBy(state.tasks, (task) => task.state)]
      : [...new Set(state.tasks.map((task) => task.state))].map((one) => [one, state.tasks.filter((task) => task.state === one)]);
    return ok({
      by: "state",
      counts: counts.map(([value, all]) => ({ value, tasks: all.length })),
      total: { value: state.tasks.length, exact: true },
    });
  }
  if (id === "actions")
    return query.get("dryRun")
      ? ok({
          action: "cancel",
          tasks: body.ids?.length ?? 9,
          oldest: time(state.now - 9e6),
          newest: time(state.now),
          max: 10_000,
          sample: [],
        })
      : ok({ id: "j1", state: "running", total: 9, done: 0, failed: 0, skipped: 0, results: [] }, 202);
  const task = state.tasks.find((one) => one.id === id);
  if (!task) return null;
  const [part, seq] = rest;
  const at = Number(query.get("at") ?? task.entries);
  if (!part) return ok({ head: { ...task, webhooks: { active: 1, failed: 0 } }, at, position: task.entries, task: foldOf(task, at) });
  if (part === "spans") return ok(spansOf(task, Date.now()));
  if (part === "events" && !seq) {
    const after = Number(query.get("after") ?? 0);
    const limit = Number(query.get("limit") ?? 50);
    return ok({ items: entriesOf(task).slice(after, after + limit), next: null, position: task.entries });
  }
  if (part === "events") return ok(wireOf(task, entriesOf(task)[Number(seq) - 1], query));
  if (part === "diff")
    return ok({ from: 1, to: 2, of: "fold", operations: [{ op: "replace", path: "/status/state", value: "TASK_STATE_WORKING" }] });
  if (part === "run-again") return ok(state.tasks[2], 201);
  if (part === "cancel") Object.assign(task, { state: "TASK_STATE_CANCELED", ended: time(Date.now()) });
  return ok(task);
}

function wireOf(task, entry, query) {
  const sent = entry.body.status || entry.body.artifact;
  const document = {
    jsonrpc: "2.0",
    id: 1,
    result: { [entry.body.artifact ? "artifactUpdate" : "statusUpdate"]: { taskId: task.id, ...entry.body } },
  };
  return {
    version: query.get("version"),
    binding: query.get("binding"),
    carrier: query.get("carrier"),
    sent: Boolean(sent),
    reason: sent ? null : "the entry is internal to the server",
    mediaType: "application/json",
    body: sent ? document : null,
    text: sent ? JSON.stringify(document) : null,
    droppedFields: query.get("version") === "1.0" ? [] : ["status.message.extensions"],
  };
}
