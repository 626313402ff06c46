// A JSON document as a tree. Branches render when they are opened, so that a document of 10,000 values stays small.
import { h } from "../h.js";
import { bytes, count, plain, text } from "../format.js";
import { rerender } from "../store.js";

const OPEN_DEPTH = 4;
const MAX_ITEMS = 100;
const MAX_TEXT = 2_000;

/**
 * State of a tree: the branches that the reader has toggled, and how many items each long branch shows.
 * @returns {{ toggled: Set<string>, shown: Map<string, number> }}
 */
export const treeState = () => ({ toggled: new Set(), shown: new Map() });

/**
 * @param {any} value
 * @param {ReturnType<typeof treeState>} state
 * @param {{ marked?: Set<string>, depth?: number }} [options] `marked`: JSON pointers of values to highlight
 */
export function json(value, state, options = {}) {
  return h(
    "div",
    { class: "json", role: "group", "aria-label": "JSON", tabindex: "0" },
    node(value, "", null, state, { depth: options.depth ?? OPEN_DEPTH, marked: options.marked, comma: false }, 0),
  );
}

/**
 * @param {any} value
 * @param {string} path
 * @param {string | null} key
 * @param {ReturnType<typeof treeState>} state
 * @param {{ depth: number, marked?: Set<string>, comma: boolean }} options
 * @param {number} depth
 * @returns {VNode}
 */
function node(value, path, key, state, options, depth) {
  const name = key === null ? null : [text(JSON.stringify(key), "span", { class: "key" }), ": "];
  const mark = options.marked?.has(path) ? " marked" : "";
  const comma = options.comma ? "," : "";
  if (value === null || typeof value !== "object") {
    return h("div", { class: `line${mark}`, key: path }, name, scalar(value, path, state), comma);
  }
  const isArray = Array.isArray(value);
  const entries = isArray ? value.map((item, index) => /** @type {[string, any]} */ ([String(index), item])) : Object.entries(value);
  const [open, close] = isArray ? "[]" : "{}";
  if (!entries.length) return h("div", { class: `line${mark}`, key: path }, name, open + close, comma);
  const isOpen = depth < options.depth !== state.toggled.has(path);
  const toggle = () => {
    if (!state.toggled.delete(path)) state.toggled.add(path);
    rerender();
  };
  const fold = h(
    "button",
    {
      type: "button",
      class: "fold",
      "aria-expanded": String(isOpen),
      "aria-label": `${isOpen ? "Fold" : "Unfold"} ${key ?? "document"}`,
      onclick: toggle,
    },
    isOpen ? "▾" : "▸",
  );
  if (!isOpen) {
    return h(
      "div",
      { class: `line${mark}`, key: path },
      fold,
      name,
      open,
      h("span", { class: "soft" }, ` ${count(entries.length)} ${isArray ? "items" : "fields"} `),
      close,
      comma,
    );
  }
  const limit = state.shown.get(path) ?? MAX_ITEMS;
  const more = entries.length - limit;
  return h(
    "div",
    { class: `branch${mark}`, key: path },
    h("div", { class: "line" }, fold, name, open),
    h(
      "div",
      { class: "children" },
      entries
        .slice(0, limit)
        .map(([child, item], index) =>
          node(item, `${path}/${child}`, isArray ? null : child, state, { ...options, comma: index < entries.length - 1 }, depth + 1),
        ),
      more > 0
        ? h(
            "button",
            { type: "button", class: "quiet", onclick: () => (state.shown.set(path, limit + 500), rerender()) },
            `… ${count(more)} more`,
          )
        : null,
    ),
    h("div", { class: "line" }, close, comma),
  );
}

/**
 * @param {any} value
 * @param {string} path
 * @param {ReturnType<typeof treeState>} state
 */
function scalar(value, path, state) {
  if (typeof value !== "string") return h("span", { class: value === null ? "null" : typeof value }, String(value));
  const limit = state.shown.get(path) ?? MAX_TEXT;
  const written = JSON.stringify(value.slice(0, limit));
  if (value.length <= limit) return text(written, "span", { class: "string" });
  return [
    text(written.slice(0, -1), "span", { class: "string" }),
    h(
      "button",
      { type: "button", class: "quiet", onclick: () => (state.shown.set(path, limit + 64_000), rerender()) },
      `… ${bytes(value.length - limit)} more`,
    ),
  ];
}

/** Readable text of a value on one line. @param {any} value @param {number} [limit] */
export function oneLine(value, limit = 120) {
  const full = typeof value === "string" ? value : JSON.stringify(value);
  const flat = plain(full ?? "").replace(/\s+/g, " ");
  return flat.length > limit ? `${flat.slice(0, limit)}…` : flat;
}
