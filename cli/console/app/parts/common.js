// Small parts that several screens share: errors, empty states, tabs, facts.
import { h } from "../h.js";
import { text } from "../format.js";

/**
 * An error: the request, the answer, the id in the log, and a retry button.
 * @param {any} error
 * @param {() => void} [retry]
 */
export function errorBox(error, retry) {
  return h(
    "div",
    { class: "error-box", role: "alert", "data-error": error.code ?? "error" },
    h("p", null, h("strong", null, "✕ "), text(error.message ?? error)),
    error.hint ? text(error.hint, "p", { class: "soft" }) : null,
    h(
      "p",
      { class: "soft small" },
      error.request ? text(error.request, "code") : null,
      error.status ? ` → ${error.status} ${error.code}` : error.code ? ` ${error.code}` : null,
      error.errorId ? [" · error id ", text(error.errorId, "code")] : null,
    ),
    retry ? h("button", { type: "button", "data-action": "retry", onclick: retry }, "Retry") : null,
  );
}

/** A line above a screen whose last refresh failed; its old data stays usable. @param {Resource<any>} resource */
export function staleNote(resource) {
  return resource.error && resource.data !== undefined ? errorBox(resource.error, () => resource.reload()) : null;
}

/** @param {...VChild} children */
export const empty = (...children) => h("div", { class: "empty" }, children);

/** @param {string} [what] */
export const loading = (what = "Loading…") => h("p", { class: "loading soft", role: "status" }, what);

/** A command, as a line to copy. @param {string} line */
export const command = (line) => h("code", { class: "command" }, line);

/**
 * Links as tabs.
 * @param {{ name: string, label: VChild, href: string, isCurrent: boolean }[]} tabs
 * @param {string} label
 */
export const tabs = (tabs, label) =>
  h(
    "nav",
    { class: "tabs", "aria-label": label },
    tabs.map((tab) => h("a", { href: tab.href, "data-tab": tab.name, "aria-current": tab.isCurrent ? "page" : null }, tab.label)),
  );

/** Names and values. @param {[string, VChild][]} rows */
export const facts = (rows) =>
  h(
    "dl",
    { class: "facts" },
    rows
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );

/**
 * A select.
 * @param {string} label
 * @param {string} value
 * @param {(string | [string, string])[]} options
 * @param {(value: string) => void} change
 * @param {VProps} [props]
 */
export const select = (label, value, options, change, props = {}) =>
  h(
    "select",
    { "aria-label": label, ...props, value, onchange: (/** @type {any} */ e) => change(e.target.value) },
    options.map((option) => {
      const [id, name] = Array.isArray(option) ? option : [option, option];
      return h("option", { value: id }, name);
    }),
  );

/** @param {VChild} children @param {VProps} [props] */
export const button = (children, props = {}) => h("button", { type: "button", ...props }, children);
