// Numbers, times, ids and states as text; untrusted text as nodes.
import { h } from "./h.js";

const numbers = new Intl.NumberFormat();
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });

/** @param {number | null | undefined} value */
export const count = (value) => (value === null || value === undefined ? "–" : numbers.format(value));
/** @param {number | null | undefined} value */
export const short = (value) => (value === null || value === undefined ? "–" : compact.format(value));

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < 4) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Last four characters: ids are UUIDv7, whose first digits are those of the time. @param {string | null | undefined} id */
export const shortId = (id) => (!id ? "–" : id.length > 8 ? `…${id.slice(-4)}` : id);

/** A duration in at most two units. @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  const value = Math.max(0, ms);
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 60_000) return `${(value / 1000).toFixed(value < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(value / 60_000);
  if (minutes < 60) return `${minutes} m ${Math.floor((value % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} m` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** @param {string | null | undefined} time */
export const since = (time) => (time ? Date.now() - Date.parse(time) : undefined);

/** @param {string | null | undefined} time */
export function age(time) {
  const ms = since(time);
  if (ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 2_000) return "now";
  const full = duration(ms);
  return `${ms < 3_600_000 ? full.replace(/(\d+ m) .*/, "$1").replace(/\.\d+/, "") : full.replace(/ \d+ [mh]$/, "")} ago`;
}

const clockFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const dayFormat = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

/** Local time of day; with the day if it is not today. @param {Date} date @param {boolean} [millis] */
export function clock(date, millis) {
  const time = clockFormat.format(date) + (millis ? `.${String(date.getMilliseconds()).padStart(3, "0")}` : "");
  return date.toDateString() === new Date().toDateString() ? time : `${dayFormat.format(date)} ${time}`;
}

/** Local time, with UTC on hover. @param {string | null | undefined} time @param {{ millis?: boolean, relative?: boolean }} [how] */
export function when(time, how = {}) {
  if (!time) return "–";
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return time;
  const text = how.relative ? age(time) : clock(date, how.millis);
  return h("time", { datetime: time, title: `${clock(date, true)} local\n${date.toISOString()}` }, text);
}

/** Glyph, word and colour of each state of a task. @type {Record<string, [string, string, string]>} */
const STATES = {
  SUBMITTED: ["○", "submitted", "soft"],
  WORKING: ["◐", "working", "accent"],
  COMPLETED: ["✓", "completed", "ok"],
  FAILED: ["✕", "failed", "bad"],
  CANCELED: ["⊘", "canceled", "off"],
  REJECTED: ["✕", "rejected", "bad"],
  INPUT_REQUIRED: ["?", "input required", "ask"],
  AUTH_REQUIRED: ["⚷", "auth required", "auth"],
};

/** @param {string} state */
export function stateWords(state) {
  const name = String(state ?? "").replace("TASK_STATE_", "");
  const [glyph, word, tone] = STATES[name] ?? ["·", name.toLowerCase().replaceAll("_", " ") || "unknown", "soft"];
  return { name, glyph, word, tone };
}

/** A lock: few fonts have one as a plain character. */
export const lock = () =>
  h(
    "svg",
    { viewBox: "0 0 16 16", width: "12", height: "12", class: "lock", "aria-hidden": "true" },
    h("path", { d: "M3 7h10v7H3zM5 7V5a3 3 0 0 1 6 0v2", fill: "none", stroke: "currentColor", "stroke-width": "1.6" }),
  );

/** @param {string} state */
export function stateLabel(state) {
  const { name, glyph, word, tone } = stateWords(state);
  return h(
    "span",
    { class: `state t-${tone}` },
    h("span", { class: "glyph", "aria-hidden": "true" }, name === "AUTH_REQUIRED" ? lock() : glyph),
    " ",
    h("span", { class: "word" }, word),
  );
}

/** @param {string} state */
export const isFinal = (state) => /COMPLETED|FAILED|CANCELED|REJECTED/.test(state);
/** @param {string} state */
export const isParked = (state) => /INPUT_REQUIRED|AUTH_REQUIRED/.test(state);

// Control characters but tab and line feed, bidi controls, zero-width characters and byte order marks.
const MARKED =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/**
 * Untrusted text: isolated, with marks in place of characters that are invisible or reorder the text (S54).
 * @param {unknown} value
 * @param {string} [tag]
 * @param {VProps} [props]
 */
export function text(value, tag = "span", props = {}) {
  const source = String(value ?? "");
  /** @type {VChild[]} */
  const parts = [];
  let at = 0;
  for (const match of source.matchAll(MARKED)) {
    if (match.index > at) parts.push(source.slice(at, match.index));
    const code = match[0].codePointAt(0) ?? 0;
    parts.push(h("span", { class: "mark" }, `⟪U+${code.toString(16).toUpperCase().padStart(4, "0")}⟫`));
    at = match.index + match[0].length;
  }
  parts.push(source.slice(at));
  return h(tag, { ...props, class: `u ${props.class ?? ""}`.trim() }, parts);
}

/** The same marks in plain text. @param {unknown} value */
export const plain = (value) =>
  String(value ?? "").replace(MARKED, (c) => `⟪U+${(c.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟫`);

/** A file name without folders, controls and leading dots (S56). @param {string | null | undefined} name */
export function safeName(name) {
  const last =
    String(name ?? "")
      .split(/[/\\]/)
      .pop() ?? "";
  const clean = last
    .replace(MARKED, "")
    .replace(/[<>:"|?*\u0000-\u001f]/g, "_")
    .replace(/^\.+/, "")
    .slice(0, 120)
    .trim();
  return clean || "file";
}

/** Title of a task. @param {TaskHead} task */
export const titleOf = (task) => task.title || `Task ${shortId(task.id)}`;

/** How long a task took, or has been running. @param {TaskHead} task */
export function took(task) {
  const end = task.ended ?? (isParked(task.state) ? task.updated : null);
  const ms = (end ? Date.parse(end) : Date.now()) - Date.parse(task.opened);
  return isFinal(task.state) || isParked(task.state) ? duration(ms) : `${duration(ms)}…`;
}

/** Tokens of a task. @param {TaskHead} task */
export function tokens(task) {
  const usage = task.usage;
  if (!usage || !((usage.inputTokens ?? 0) + (usage.outputTokens ?? 0))) return "–";
  return `${usage.estimated ? "≈" : ""}${count((usage.inputTokens ?? 0) + (usage.outputTokens ?? 0))} t`;
}
