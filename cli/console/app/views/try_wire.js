// Exchanges of Try it: folding received events into a task, their display, and their export.
import { h } from "../h.js";
import { bytes, duration, safeName, text } from "../format.js";
import { rerender } from "../store.js";
import { json, oneLine, treeState } from "../parts/json.js";
import { save } from "../parts/dialog.js";
import { quote } from "./task_copy.js";

/** Trees and opened lines of the exchanges. */
const trees = new Map();

/** @param {string} body */
function parse(body) {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

/**
 * Applies one event of `POST /try/send` to a turn.
 * @param {any} turn
 * @param {string} event
 * @param {any} data
 */
export function apply(turn, event, data) {
  if (event === "request") turn.request = data;
  else if (event === "response") turn.response = data;
  else if (event === "event") {
    turn.events.push({ ...data, document: parse(data.body) });
    fold(turn, parse(data.body));
  } else if (event === "end") {
    turn.end = data;
    if (data.body) fold(turn, parse(data.body));
  }
}

/** Reads a reply of any version and binding: a task, a message, or an update. @param {any} turn @param {any} document */
function fold(turn, document) {
  const result = document?.result ?? document;
  if (!result || typeof result !== "object") return;
  if (document.error) turn.end = { ...turn.end, error: document.error.message ?? oneLine(document.error) };
  const kind = result.kind;
  const task = result.task ?? (kind === "task" || (result.status && result.id) ? result : undefined);
  const message = result.message ?? (kind === "message" ? result : undefined);
  const status = result.statusUpdate ?? (kind === "status-update" ? result : undefined);
  const artifact = result.artifactUpdate ?? (kind === "artifact-update" ? result : undefined);
  if (task) turn.task = { ...task };
  else if (status) turn.task = { id: status.taskId, contextId: status.contextId, ...turn.task, status: status.status };
  else if (artifact) addChunk(turn, artifact);
  else if (message) turn.message = message;
}

/** @param {any} turn @param {any} update */
function addChunk(turn, update) {
  const task = (turn.task ??= { id: update.taskId, contextId: update.contextId });
  const artifacts = [...(task.artifacts ?? [])];
  const index = artifacts.findIndex((one) => one.artifactId === update.artifact.artifactId);
  if (index < 0 || !update.append) {
    if (index < 0) artifacts.push(update.artifact);
    else artifacts[index] = update.artifact;
  } else {
    const parts = [...artifacts[index].parts];
    for (const part of update.artifact.parts) {
      const last = parts.at(-1);
      // Chunks of one text read as one text.
      if (last && typeof last.text === "string" && typeof part.text === "string")
        parts[parts.length - 1] = { ...last, text: last.text + part.text };
      else parts.push(part);
    }
    artifacts[index] = { ...artifacts[index], parts };
  }
  task.artifacts = artifacts;
}

/** What an event is, in a few words. @param {any} document */
function summary(document) {
  const result = document?.result ?? document;
  if (document?.error) return `error ${document.error.code ?? ""} ${document.error.message ?? ""}`;
  const name = result?.kind ?? Object.keys(result ?? {})[0] ?? "";
  const inner = result?.[name] && typeof result[name] === "object" ? result[name] : result;
  const state = inner?.status?.state ?? "";
  const artifact = inner?.artifact
    ? `${inner.artifact.name ?? inner.artifact.artifactId ?? ""}${inner.append ? " append" : ""}${inner.lastChunk ? " last" : ""}`
    : "";
  return [name, String(state).replace("TASK_STATE_", "").toLowerCase(), artifact].filter(Boolean).join(" ");
}

/** @param {any} turn @param {number} index */
export function exchangeView(turn, index) {
  const { request, response, end } = turn;
  return h(
    "li",
    { class: "exchange" },
    request
      ? line(`→ ${request.method} ${request.url}`, bytes(request.body?.length ?? 0), `${index}.q`, () => [
          headersView(request.headers),
          body(request.body, `${index}.q`),
        ])
      : null,
    response
      ? line(`← ${response.status} ${response.headers?.["content-type"] ?? ""}`, duration(response.ms), `${index}.r`, () =>
          headersView(response.headers),
        )
      : null,
    turn.events.map((/** @type {any} */ event, /** @type {number} */ n) =>
      line(`${event.id ? `id ${event.id} ` : ""}${summary(event.document)}`, duration(event.ms), `${index}.${n}`, () =>
        body(event.body, `${index}.${n}`),
      ),
    ),
    end?.body ? line(`body ${summary(parse(end.body))}`, bytes(end.bytes), `${index}.b`, () => body(end.body, `${index}.b`)) : null,
    end ? h("p", { class: "soft small", "data-exchange-end": index }, `${bytes(end.bytes)} in ${duration(end.ms)}`) : null,
  );
}

/**
 * @param {string} label
 * @param {string} note
 * @param {string} key
 * @param {() => VChild} content
 */
function line(label, note, key, content) {
  const isOpen = trees.get(`open:${key}`) === true;
  const toggle = () => {
    trees.set(`open:${key}`, !isOpen);
    rerender();
  };
  return h(
    "div",
    { class: "wire-line", key },
    h(
      "button",
      { type: "button", class: "fold-line", "aria-expanded": String(isOpen), onclick: toggle },
      h("span", { "aria-hidden": "true" }, isOpen ? "▾ " : "▸ "),
      text(label),
      h("span", { class: "soft" }, ` ${note}`),
    ),
    isOpen ? h("div", { class: "inside" }, content()) : null,
  );
}

/** @param {Record<string, string>} headers */
const headersView = (headers) =>
  h(
    "dl",
    { class: "headers" },
    Object.entries(headers ?? {}).map(([name, value]) => h("div", null, text(name, "dt"), text(value, "dd"))),
  );

/** @param {string} source @param {string} key */
function body(source, key) {
  const document = parse(source ?? "");
  if (document === undefined) return text(source ?? "", "pre", { class: "wrap" });
  if (!trees.has(key)) trees.set(key, treeState());
  return json(document, trees.get(key), { depth: 4 });
}

/** @param {any} turn @param {any} agent */
function fullUrl(turn, agent) {
  return /^https?:/.test(turn.request.url) ? turn.request.url : new URL(turn.request.url, agent?.origin ?? location.origin).href;
}

/** @param {any} turn @param {any} agent */
export function exchangeCurl(turn, agent) {
  const headers = Object.entries(turn.request.headers ?? {}).filter(
    ([name]) => !/^(host|content-length|user-agent|accept-encoding|connection)$/i.test(name),
  );
  const written = headers.map(([name, value]) =>
    /^authorization$/i.test(name) ? `-H "Authorization: Bearer $A2A_TOKEN"` : `-H ${quote(`${name}: ${value}`)}`,
  );
  return [`curl -sSN ${quote(fullUrl(turn, agent))}`, ...written, `-d ${quote(turn.request.body ?? "")}`].join(" ");
}

/** Saves the exchanges as HAR or as JSON Lines. @param {any[]} turns @param {string} format @param {any} agent */
export function saveExchanges(turns, format, agent) {
  const known = turns.filter((turn) => turn.request);
  const pairs = (/** @type {Record<string, string>} */ headers) => Object.entries(headers ?? {}).map(([name, value]) => ({ name, value }));
  const received = (/** @type {any} */ turn) =>
    turn.end?.body ??
    turn.events.map((/** @type {any} */ event) => `${event.id ? `id: ${event.id}\n` : ""}data: ${event.body}\n\n`).join("");
  const content =
    format === "jsonl"
      ? known
          .map((turn) =>
            JSON.stringify({
              request: turn.request,
              response: turn.response,
              events: turn.events.map((/** @type {any} */ event) => ({ id: event.id, ms: event.ms, body: event.body })),
              end: turn.end,
            }),
          )
          .join("\n")
      : JSON.stringify(
          {
            log: {
              version: "1.2",
              creator: { name: "Attache", version: "1" },
              entries: known.map((turn) => ({
                startedDateTime: new Date().toISOString(),
                time: turn.end?.ms ?? 0,
                request: {
                  method: turn.request.method,
                  url: fullUrl(turn, agent),
                  httpVersion: "HTTP/1.1",
                  headers: pairs(turn.request.headers),
                  queryString: [],
                  cookies: [],
                  headersSize: -1,
                  bodySize: turn.request.body?.length ?? 0,
                  postData: { mimeType: "application/json", text: turn.request.body ?? "" },
                },
                response: {
                  status: turn.response?.status ?? 0,
                  statusText: "",
                  httpVersion: "HTTP/1.1",
                  headers: pairs(turn.response?.headers),
                  cookies: [],
                  content: { size: turn.end?.bytes ?? 0, mimeType: turn.response?.headers?.["content-type"] ?? "", text: received(turn) },
                  redirectURL: "",
                  headersSize: -1,
                  bodySize: turn.end?.bytes ?? 0,
                },
                cache: {},
                timings: { send: 0, wait: turn.response?.ms ?? 0, receive: Math.max(0, (turn.end?.ms ?? 0) - (turn.response?.ms ?? 0)) },
              })),
            },
          },
          null,
          2,
        );
  save(safeName(`exchanges.${format}`), new Blob([content], { type: "application/json" }));
}
