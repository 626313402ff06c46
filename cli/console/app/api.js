// Calls of the admin API: addresses relative to the page, session header, errors.
import { saveSetting, set, setting, store } from "./store.js";

export const BASE = new URL("../api/v1/", document.baseURI);

/** A failed call: what was requested, what came back, and how to repair it. */
export class ApiError extends Error {
  /**
   * @param {string} request
   * @param {number} status
   * @param {any} body
   */
  constructor(request, status, body) {
    const error = body?.error ?? {};
    super(error.message ?? (status ? `HTTP ${status}` : "the server does not respond"));
    this.request = request;
    this.status = status;
    this.code = error.code ?? (status ? `http_${status}` : "unreachable");
    this.hint = error.hint ?? (status ? "" : "Is the server running? The console tries again when you press Retry.");
    this.errorId = error.errorId ?? "";
    this.field = error.field ?? "";
    this.body = body;
  }
}

/** Storage key of the CSRF token. A proxy may serve several consoles of one origin under different prefixes. */
const TOKEN = `attache-session:${BASE.pathname}`;
const token = () => setting(TOKEN);

/**
 * Builds the address of an API path. Undefined and empty parameters are left out, arrays repeat.
 * @param {string} path
 * @param {Record<string, any>} [query]
 */
export function address(path, query = {}) {
  const url = new URL(path.replace(/^\//, ""), BASE);
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") url.searchParams.append(name, String(one));
    }
  }
  return url;
}

/**
 * The call of the API as a command for a shell, with an operator key.
 * @param {string} method
 * @param {string} path
 * @param {any} [body]
 */
export function apiCommand(method, path, body) {
  const url = address(path.split("?")[0]).href + (path.includes("?") ? `?${path.split("?")[1]}` : "");
  const sent =
    method === "GET" ? "" : ` -X ${method} -H 'Content-Type: application/json' -d '${JSON.stringify(body ?? {}).replaceAll("'", "'\\''")}'`;
  return `curl -sS -H "Authorization: Bearer $ATTACHE_KEY"${sent} '${url}'`;
}

/** Percent-encodes one segment of a path. @param {string | number} text */
export const seg = (text) => encodeURIComponent(String(text));

/**
 * Sends a request and returns the response if its status is a success.
 * @param {string} method
 * @param {string} path
 * @param {{ query?: Record<string, any>, body?: any, headers?: Record<string, string>, signal?: AbortSignal }} [options]
 */
export async function call(method, path, options = {}) {
  const url = address(path, options.query);
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json", ...options.headers };
  if (token()) headers["Attache-Session"] = token();
  if (method !== "GET") headers["Content-Type"] = "application/json";
  const request = `${method} ${decodeURIComponent(url.pathname.slice(BASE.pathname.length - 1))}${url.search}`;
  let response;
  try {
    const body = method === "GET" ? undefined : JSON.stringify(options.body ?? {});
    response = await fetch(url, { method, headers, body, signal: options.signal, credentials: "same-origin" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(request, 0, null);
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  if (response.status === 401 && path !== "/session") signedOut();
  throw new ApiError(request, response.status, body);
}

/**
 * @param {string} path
 * @param {Record<string, any>} [query]
 * @param {AbortSignal} [signal]
 */
export async function get(path, query, signal) {
  return (await call("GET", path, { query, signal })).json();
}

/**
 * @param {string} path
 * @param {any} [body]
 * @param {{ query?: Record<string, any>, headers?: Record<string, string>, signal?: AbortSignal }} [options]
 */
export async function post(path, body, options) {
  const response = await call("POST", path, { ...options, body });
  return response.status === 204 ? null : response.json();
}

/** @param {string} path */
export async function remove(path) {
  const response = await call("DELETE", path);
  return response.status === 204 ? null : response.json().catch(() => null);
}

/** Signs in with a one-time link or an operator key. @param {{ link?: string, key?: string }} credential */
export async function signIn(credential) {
  const session = await post("/session", credential);
  saveSetting(TOKEN, session.csrfToken);
  set({ session, notice: "" });
}

/** Reads the session of an earlier visit. Returns false without one. */
export async function resume() {
  if (!token()) return false;
  try {
    set({ session: await get("/session") });
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return false;
    throw error;
  }
}

export async function signOut() {
  await call("DELETE", "/session").catch(() => null);
  saveSetting(TOKEN, null);
  set({ session: null });
  location.hash = "#/login";
}

function signedOut() {
  if (!store.session) return;
  saveSetting(TOKEN, null);
  const notice = "Your session ended: its key was revoked, it was idle for 8 hours, or the server restarted.";
  set({ session: null, notice, returnTo: location.hash });
  location.hash = "#/login";
}

/**
 * Reads a stream of server-sent events and calls `each` for every one. Returns at the end of the stream.
 * @param {Response} response
 * @param {(event: string, data: string, id: string) => void} each
 * @param {() => void} [alive]
 */
export async function readEvents(response, each, alive) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive?.();
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      let event = "message";
      let data = "";
      let id = "";
      for (const line of block.split(/\r?\n/)) {
        if (line.startsWith("event:")) event = line.slice(6).trim();
        else if (line.startsWith("data:")) data += (data ? "\n" : "") + line.slice(5).replace(/^ /, "");
        else if (line.startsWith("id:")) id = line.slice(3).trim();
      }
      if (data || event !== "message") each(event, data, id);
    }
  }
}
