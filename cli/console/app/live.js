// Live updates: one event stream per browser. The tab that holds a Web Lock reads the stream and forwards its frames to the
// other tabs over a BroadcastChannel. A browser opens 6 HTTP/1.1 connections per host: a stream per tab would block the rest.
import { BASE, call, readEvents } from "./api.js";
import { has, set, store } from "./store.js";

const NAME = `attache-live:${BASE.pathname}`;
const TAB = crypto.getRandomValues(new Uint32Array(2)).join("-");
const HIDDEN_AFTER_MS = 60_000;
const POLL_EVERY_MS = 5_000;
/** The server writes a comment every 15 s. */
const SILENT_AFTER_MS = 20_000;

/** Topics of the other tabs. @type {Map<string, string[]>} */
const others = new Map();
/** @type {string[]} */
let own = [];
/** @type {(event: string, data: any) => void} */
let deliver = () => {};
/** @type {BroadcastChannel | undefined} */
let channel;
let lastId = "";
let isPaused = false;
let isLeader = false;
let isHidden = false;
/** Ends the leadership of this tab. @type {(() => void) | undefined} */
let resign;
/** @type {AbortController | undefined} */
let stream;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let restartTimer;

/** Starts live updates. @param {(event: string, data: any) => void} onFrame */
export function start(onFrame) {
  deliver = onFrame;
  if (!navigator.locks || !self.BroadcastChannel || (store.session && !has("events"))) {
    // Plain HTTP on another host has no Web Locks, and a server may have no event stream: each tab polls.
    setInterval(() => !isPaused && !document.hidden && store.session && deliver("resync", {}), POLL_EVERY_MS);
    status("polling");
    return;
  }
  channel = new BroadcastChannel(NAME);
  channel.onmessage = ({ data }) => receive(data);
  document.addEventListener("visibilitychange", visibility);
  addEventListener("pagehide", () => channel?.postMessage({ type: "bye", tab: TAB }));
  announce();
  lead();
}

/** Requests leadership, and reads the stream while this tab holds it. */
function lead() {
  navigator.locks
    .request(NAME, async () => {
      isLeader = true;
      channel?.postMessage({ type: "hello" });
      restart(0);
      await new Promise((resolve) => (resign = () => resolve(undefined)));
      isLeader = false;
      stream?.abort();
    })
    .catch(() => status("off"));
}

/** @param {any} message */
function receive(message) {
  if (message.type === "topics") {
    const before = union();
    others.set(message.tab, message.topics);
    if (isLeader && union() !== before) restart(50);
  } else if (message.type === "bye") others.delete(message.tab);
  else if (message.type === "hello") announce();
  else if (message.type === "status") set({ live: message.live });
  else if (message.type === "frame") dispatch(message.event, message.data, message.id);
}

/** Topics of all tabs, in the form of a query. */
function union() {
  return [...new Set([...own, ...[...others.values()].flat()])].sort().join("\n");
}

function announce() {
  channel?.postMessage({ type: "topics", tab: TAB, topics: own });
}

/** Sets what this tab follows. @param {string[]} topics */
export function follow(topics) {
  if (topics.join() === own.join()) return;
  const before = union();
  own = topics;
  announce();
  if (isLeader && union() !== before) restart(50);
}

/** Stops or continues live updates of this tab. */
export function togglePause() {
  isPaused = !isPaused;
  set({ live: { ...store.live, kind: isPaused ? "paused" : "live" } });
  if (!isPaused) deliver("resync", {});
}

/** @param {number} delay */
function restart(delay) {
  clearTimeout(restartTimer);
  restartTimer = setTimeout(() => {
    stream?.abort();
    clearTimeout(timer);
    read(0);
  }, delay);
}

/** @param {number} failures consecutive failures before this attempt */
async function read(failures) {
  const topics = union();
  if (!isLeader || !store.session || !topics) return;
  const controller = (stream = new AbortController());
  let silence = setTimeout(() => controller.abort(), 4 * SILENT_AFTER_MS);
  const alive = () => {
    clearTimeout(silence);
    silence = setTimeout(() => controller.abort(), 4 * SILENT_AFTER_MS);
    status("live");
  };
  let isShutdown = false;
  let hasConnected = false;
  try {
    /** @type {Record<string, string>} */
    const headers = { Accept: "text/event-stream" };
    if (lastId) headers["Last-Event-ID"] = lastId;
    const response = await call("GET", "/events", { query: { topic: topics.split("\n") }, headers, signal: controller.signal });
    hasConnected = true;
    alive();
    await readEvents(
      response,
      (event, text, id) => {
        const data = text ? JSON.parse(text) : {};
        isShutdown = event === "shutdown";
        channel?.postMessage({ type: "frame", event, data, id });
        dispatch(event, data, id);
      },
      alive,
    );
  } catch {
    if (stream !== controller) return;
  } finally {
    clearTimeout(silence);
  }
  if (stream !== controller || !isLeader) return;
  const tries = hasConnected ? 0 : failures + 1;
  const wait = isShutdown ? 500 : Math.min(15_000, 500 * 2 ** tries);
  status("off", Date.now() + wait);
  timer = setTimeout(() => read(tries), wait);
}

/**
 * @param {string} event
 * @param {any} data
 * @param {string} id
 */
function dispatch(event, data, id) {
  if (id) lastId = id;
  if (!isPaused && !isHidden) deliver(event, data);
}

let lastStatus = "";
/**
 * @param {string} kind
 * @param {number} [next]
 */
function status(kind, next) {
  const live = { kind: isPaused ? "paused" : kind, at: Date.now(), next };
  const isNews = live.kind !== lastStatus || next !== undefined;
  lastStatus = live.kind;
  if (isLeader) channel?.postMessage({ type: "status", live });
  store.live = live;
  if (isNews) set({ live });
}

/** A tab that is hidden for a minute gives up its stream, and reads everything again when it is visible. */
function visibility() {
  clearTimeout(hideTimer);
  if (document.hidden) {
    hideTimer = setTimeout(() => {
      isHidden = true;
      channel?.postMessage({ type: "topics", tab: TAB, topics: [] });
      resign?.();
      resign = undefined;
    }, HIDDEN_AFTER_MS);
  } else if (isHidden) {
    isHidden = false;
    announce();
    lead();
    deliver("resync", {});
  }
}
/** @type {ReturnType<typeof setTimeout> | undefined} */
let hideTimer;

/** Continues after a sign-in. */
export function reconnect() {
  lastId = "";
  if (isLeader) restart(0);
}

/** Words of the live indicator. */
export function describe() {
  const { kind, at, next } = store.live;
  const seconds = Math.round((Date.now() - at) / 1000);
  if (kind === "paused") return { glyph: "‖", text: "paused" };
  if (kind === "polling") return { glyph: "○", text: "every 5 s" };
  if (kind === "off") {
    const wait = next ? Math.max(0, Math.round((next - Date.now()) / 1000)) : 0;
    return { glyph: "✕", text: `not connected, next attempt in ${wait} s` };
  }
  if (kind === "connecting") return { glyph: "○", text: "connecting" };
  if (seconds * 1000 > SILENT_AFTER_MS) return { glyph: "○", text: `${seconds} s behind` };
  return { glyph: "●", text: "live" };
}
