// Structural difference of two JSON documents, as RFC 6902 operations, and its display.
import { h } from "../h.js";
import { text } from "../format.js";
import { oneLine } from "./json.js";

/**
 * Operations that turn `before` into `after`.
 * @param {any} before
 * @param {any} after
 * @param {string} [path]
 * @param {{ op: string, path: string, value?: any, before?: any }[]} [into]
 */
export function diff(before, after, path = "", into = []) {
  if (before === after) return into;
  const isBranch = (/** @type {any} */ value) => value !== null && typeof value === "object";
  if (!isBranch(before) || !isBranch(after) || Array.isArray(before) !== Array.isArray(after)) {
    if (JSON.stringify(before) !== JSON.stringify(after)) into.push({ op: "replace", path, value: after, before });
    return into;
  }
  for (const key of Object.keys(before))
    if (!(key in after)) into.push({ op: "remove", path: `${path}/${escape(key)}`, before: before[key] });
  for (const key of Object.keys(after)) {
    const inner = `${path}/${escape(key)}`;
    if (key in before) diff(before[key], after[key], inner, into);
    else into.push({ op: "add", path: inner, value: after[key] });
  }
  return into;
}

/** @param {string} key */
const escape = (key) => key.replaceAll("~", "~0").replaceAll("/", "~1");

/** @type {Record<string, [string, string]>} */
const SIGNS = { add: ["+", "ok"], remove: ["−", "bad"], replace: ["~", "ask"] };

/**
 * Shows operations, one per line: `+ parts/0/data`, `~ status/timestamp`.
 * @param {{ op: string, path: string, value?: any, before?: any }[]} operations
 * @param {number} [limit]
 */
export function diffView(operations, limit = 50) {
  if (!operations.length) return h("p", { class: "soft" }, "No difference.");
  return h(
    "ul",
    { class: "diff", "aria-label": "Differences" },
    operations.slice(0, limit).map((operation) => {
      const [sign, tone] = SIGNS[operation.op] ?? ["·", "soft"];
      const value = operation.op === "remove" ? operation.before : operation.value;
      return h(
        "li",
        { class: `t-${tone}` },
        h("span", { class: "sign" }, sign),
        " ",
        text(operation.path.slice(1) || "document", "code"),
        value === undefined ? null : [" ", text(oneLine(value, 160), "span", { class: "soft" })],
      );
    }),
    operations.length > limit ? h("li", { class: "soft" }, `… ${operations.length - limit} more`) : null,
  );
}
