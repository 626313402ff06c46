// Filters of the task list: quick groups, chips, and a form that adds one.
import { h } from "../h.js";
import { text } from "../format.js";
import { href, replace } from "../route.js";
import { rerender, saveSetting, setting } from "../store.js";
import { button } from "../parts/common.js";
import { dialog } from "../parts/dialog.js";

/** States of each quick group. @type {Record<string, string[]>} */
export const GROUPS = {
  "in flight": ["submitted", "working"],
  parked: ["input-required", "auth-required"],
  failed: ["failed", "rejected"],
  ended: ["completed", "failed", "canceled", "rejected"],
  all: [],
};

/** Filters that the form offers: name, label, example or choices. @type {[string, string, string | string[]][]} */
const FILTERS = [
  ["agent", "agent", "clerk"],
  ["caller", "caller", "key:ci"],
  ["tenant", "tenant", "acme"],
  ["context", "conversation", "id of the conversation"],
  ["since", "updated since", "1h"],
  ["until", "updated until", "2026-11-17T10:00:00Z"],
  ["opened", "opened since", "2d"],
  ["waiting", "waiting for", ["approval", "answer", "credentials", "tool"]],
  ["parent", "parent", "id of the parent task"],
  ["reason", "reason", "timed-out"],
  ["longerThan", "took longer than", "30s"],
  ["entries", "more entries than", "100"],
  ["text", "words in messages", "invoice 42"],
  ["id", "id begins with", "01a1e8fd"],
  ["order", "order", ["updated", "opened"]],
];
const NAMES = new Set([...FILTERS.map(([name]) => name), "state"]);

/** The filters of a route. @param {URLSearchParams} query */
export function filtersOf(query) {
  const filters = new URLSearchParams();
  for (const [name, value] of query) if (NAMES.has(name)) filters.append(name, value);
  return filters;
}

/** Name of the quick group of a route, if it is one. @param {URLSearchParams} query */
export function groupOf(query) {
  const states = query.getAll("state").sort().join();
  return Object.entries(GROUPS).find(([, group]) => [...group].sort().join() === states)?.[0];
}

/** @param {URLSearchParams} query @param {VChild} chip */
export function filterBar(query, chip) {
  const filters = filtersOf(query);
  const isGroup = groupOf(query) !== undefined;
  const chips = [...filters.entries()].filter(([name]) => name !== "state" || !isGroup);
  const remove = (/** @type {string} */ name, /** @type {string} */ value) => {
    const next = new URLSearchParams(filters);
    next.delete(name, value);
    replace(href(["tasks"], next));
  };
  return h(
    "div",
    { class: "filters" },
    chips.map(([name, value]) =>
      h(
        "span",
        { class: "chip", "data-filter": name },
        `${FILTERS.find(([one]) => one === name)?.[1] ?? name}: `,
        text(value),
        button("✕", { class: "quiet", "aria-label": `Remove filter ${name}`, onclick: () => remove(name, value) }),
      ),
    ),
    button("+ filter", { class: "quiet", "data-action": "add-filter", onclick: () => addFilter(filters) }),
    saved(filters),
    h("span", { class: "grow" }),
    chip,
  );
}

/** @param {URLSearchParams} filters */
function addFilter(filters) {
  let name = "agent";
  dialog(
    "Add a filter",
    (close, redraw) => {
      const [, , example] = FILTERS.find(([one]) => one === name) ?? ["", "", ""];
      const submit = (/** @type {any} */ event) => {
        event.preventDefault();
        const value = event.target.elements.value.value.trim();
        if (!value) return;
        const next = new URLSearchParams(filters);
        next.set(name, value);
        close();
        replace(href(["tasks"], next));
      };
      return h(
        "form",
        { onsubmit: submit, class: "stack" },
        h(
          "label",
          null,
          "Filter",
          h(
            "select",
            { name: "name", value: name, onchange: (/** @type {any} */ e) => ((name = e.target.value), redraw()) },
            FILTERS.map(([one, label]) => h("option", { value: one }, label)),
          ),
        ),
        h(
          "label",
          { key: name },
          "Value",
          Array.isArray(example)
            ? h(
                "select",
                { name: "value" },
                example.map((one) => h("option", { value: one }, one)),
              )
            : h("input", { name: "value", placeholder: example, autocomplete: "off", spellcheck: "false" }),
        ),
        ["reason", "longerThan", "entries", "waiting", "text"].includes(name)
          ? h("p", { class: "soft small" }, "This filter has no index: a search reads 5,000 tasks at a time.")
          : null,
        h("div", { class: "buttons" }, h("button", { class: "primary", "data-action": "apply" }, "Apply")),
      );
    },
    { name: "filter" },
  );
}

/** @returns {Record<string, string>} */
function savedFilters() {
  try {
    return JSON.parse(setting("filters", "{}"));
  } catch {
    return {};
  }
}

/** @param {URLSearchParams} filters */
function saved(filters) {
  const all = savedFilters();
  const store = (/** @type {Record<string, string>} */ next) => {
    saveSetting("filters", JSON.stringify(next));
    rerender();
  };
  const save = () =>
    dialog("Save this filter", (close) =>
      h(
        "form",
        {
          class: "stack",
          onsubmit: (/** @type {any} */ event) => (
            event.preventDefault(),
            store({ ...all, [event.target.elements.name.value.trim() || "filter"]: filters.toString() }),
            close()
          ),
        },
        h("label", null, "Name", h("input", { name: "name", required: true, maxlength: "30" })),
        h("p", { class: "soft small" }, "Saved in this browser. A link carries the filters to others."),
        h("div", { class: "buttons" }, h("button", { class: "primary" }, "Save")),
      ),
    );
  return [
    Object.entries(all).map(([name, query]) =>
      h(
        "span",
        { class: "chip saved" },
        h("a", { href: href(["tasks"], new URLSearchParams(query)) }, text(name)),
        button("✕", { class: "quiet", "aria-label": `Forget filter ${name}`, onclick: () => (delete all[name], store(all)) }),
      ),
    ),
    filters.size ? button("save", { class: "quiet", onclick: save }) : null,
  ];
}
