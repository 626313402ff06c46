// Wire pane: one entry as the event of the log, or as the bytes that a client of a version and binding receives.
import { get } from "../api.js";
import { h } from "../h.js";
import { clock, count, duration, text } from "../format.js";
import { rerender } from "../store.js";
import { button, errorBox, loading, select } from "../parts/common.js";
import { copyText } from "../parts/dialog.js";
import { diff, diffView } from "../parts/diff.js";
import { json, treeState } from "../parts/json.js";

export const VERSIONS = ["event", "1.0", "0.3", "0.2"];
/** @type {[string, string][]} */
const BINDINGS = [
  ["jsonrpc", "JSON-RPC"],
  ["rest", "HTTP+JSON"],
  ["grpc", "gRPC"],
];
/** @type {[string, string][]} */
const CARRIERS = [
  ["stream", "stream event"],
  ["push", "push body"],
  ["get", "part of GetTask"],
];
const CACHE_SIZE = 200;

/**
 * @param {ReturnType<typeof import("./task_data.js").taskData>} data
 * @param {(changes: Record<string, string | number | null>) => void} change
 */
export function wirePane(data, change) {
  /** Answers by request. @type {Map<string, { value?: any, error?: any }>} */
  const cache = new Map();
  let tree = treeState();
  let shown = "";

  /** @param {string} key @param {() => Promise<any>} load */
  function cached(key, load) {
    const known = cache.get(key);
    if (known) return known;
    /** @type {{ value?: any, error?: any }} */
    const slot = {};
    cache.set(key, slot);
    if (cache.size > CACHE_SIZE) cache.delete(cache.keys().next().value ?? "");
    load()
      .then(
        (value) => (slot.value = value ?? null),
        (error) => (slot.error = error),
      )
      .finally(rerender);
    return slot;
  }

  /** @param {{ query: URLSearchParams, seq: number, total: number, select: (seq: number) => void }} options */
  function view({ query, seq, total, select: choose }) {
    const at = Number(query.get("at")) || null;
    const version = query.get("wire") ?? "event";
    const binding = query.get("binding") ?? "jsonrpc";
    const carrier = query.get("carrier") ?? "stream";
    const what = `${at}:${seq}:${version}:${binding}:${carrier}`;
    if (what !== shown) tree = treeState();
    shown = what;
    if (!seq) return h("section", { class: "wire", key: "wire", "aria-label": "Entry" }, h("p", { class: "soft" }, "No entries yet."));
    const entry = cached(`entry:${seq}`, () => data.entry(seq));
    const before = seq > 1 ? cached(`entry:${seq - 1}`, () => data.entry(seq - 1)) : undefined;
    return h(
      "section",
      { class: "wire", key: "wire", "aria-label": `Entry ${seq}`, "data-seq": seq },
      at ? stateBanner(at, total) : null,
      h(
        "header",
        null,
        h("h2", null, at ? `State at #${at}` : [`#${seq} `, text(entry.value?.kind ?? "")]),
        entry.value
          ? h(
              "span",
              { class: "soft small" },
              clock(new Date(entry.value.time), true),
              before?.value ? ` (+${duration(Date.parse(entry.value.time) - Date.parse(before.value.time))})` : "",
            )
          : null,
        h("span", { class: "grow" }),
        button("‹", { "aria-label": "Previous entry", disabled: seq <= 1, onclick: () => choose(seq - 1) }),
        button("›", { "aria-label": "Next entry", disabled: seq >= total, onclick: () => choose(seq + 1) }),
      ),
      at
        ? stateAt(at, total, query)
        : [versionBar(version, binding, carrier), body(seq, version, binding, carrier, entry), since(seq, entry, before)],
    );
  }

  /** @param {string} version @param {string} binding @param {string} carrier */
  function versionBar(version, binding, carrier) {
    return h(
      "div",
      { class: "toolbar" },
      h(
        "div",
        { class: "segments", role: "group", "aria-label": "Version" },
        VERSIONS.map((one) =>
          button(one === "event" ? "Event" : one, {
            "aria-pressed": String(one === version),
            "data-wire": one,
            onclick: () => change({ wire: one === "event" ? null : one }),
          }),
        ),
      ),
      version === "event"
        ? null
        : [
            select("Binding", binding, BINDINGS, (value) => change({ binding: value })),
            select("Carrier", carrier, CARRIERS, (value) => change({ carrier: value })),
          ],
    );
  }

  /** @param {number} seq @param {string} version @param {string} binding @param {string} carrier @param {{ value?: any, error?: any }} entry */
  function body(seq, version, binding, carrier, entry) {
    if (version === "event") {
      if (entry.error) return errorBox(entry.error);
      if (entry.value === undefined) return loading();
      return [
        h("div", { class: "document", "data-document": "event" }, json(entry.value?.body ?? null, tree)),
        buttons(seq, () => JSON.stringify(entry.value?.body, null, 2)),
      ];
    }
    const slot = cached(`wire:${seq}:${version}:${binding}:${carrier}`, () =>
      get(`${data.path}/events/${seq}/wire`, { version, binding, carrier }),
    );
    if (slot.error)
      return slot.error.status === 404 || slot.error.status === 422
        ? h("p", { class: "note" }, text(slot.error.message), " ", text(slot.error.hint))
        : errorBox(slot.error);
    if (slot.value === undefined) return loading();
    const answer = slot.value;
    if (!answer.sent)
      return [
        h("p", { class: "note", "data-document": "none" }, `A ${version} client receives nothing for entry #${seq}: `, text(answer.reason)),
        buttons(seq, () => ""),
      ];
    const dropped = answer.droppedFields ?? [];
    return [
      h(
        "div",
        { class: "document", "data-document": version, "data-binding": binding },
        answer.body === null ? text(answer.text, "pre", { class: "wrap" }) : json(answer.body, tree),
      ),
      dropped.length
        ? h(
            "p",
            { class: "note", "data-dropped": dropped.length },
            `Version ${version} cannot carry: `,
            dropped.map((/** @type {string} */ field, /** @type {number} */ index) => [index ? ", " : "", text(field, "code")]),
          )
        : null,
      buttons(seq, () => answer.text),
    ];
  }

  /** @param {number} seq @param {() => string} copied */
  function buttons(seq, copied) {
    return h(
      "div",
      { class: "buttons start" },
      button("Copy", { "data-action": "copy-wire", onclick: () => copyText(copied(), `entry ${seq}`) }),
      button(`State at #${seq} ⟲`, { "data-action": "state-at", onclick: () => change({ at: seq, seq }) }),
      button("In the list", { class: "quiet", onclick: () => change({ view: "list", seq }) }),
    );
  }

  /** @param {number} at @param {number} total */
  const stateBanner = (at, total) =>
    h(
      "p",
      { class: "banner", role: "status" },
      `state at #${count(at)} of ${count(total)} · `,
      button("back to now", { class: "link", "data-action": "now", onclick: () => change({ at: null }) }),
    );

  /** @param {number} at @param {number} total @param {URLSearchParams} query */
  function stateAt(at, total, query) {
    const other = Number(query.get("from")) || Math.max(0, at - 1);
    const slot = cached(`at:${at}`, () => get(data.path, { at }));
    const changes = at > 1 ? cached(`diff:${other}:${at}`, () => get(`${data.path}/diff`, { from: other, to: at, of: "fold" })) : undefined;
    if (slot.error) return errorBox(slot.error);
    if (slot.value === undefined) return loading();
    const operations = changes?.value?.operations ?? [];
    return [
      h("input", {
        type: "range",
        min: "1",
        max: String(total),
        value: String(at),
        "aria-label": "Entry",
        "data-action": "travel",
        oninput: (/** @type {any} */ e) => change({ at: e.target.value, seq: e.target.value, from: null }),
      }),
      h("div", { class: "document", "data-document": "state", "data-at": at }, json(slot.value.task, tree, { depth: 3 })),
      at > 1
        ? h(
            "div",
            { class: "since" },
            h(
              "h3",
              null,
              "Since ",
              select("Compare with", String(other), range(at, total), (value) => change({ from: value })),
            ),
            changes?.error ? errorBox(changes.error) : diffView(operations),
          )
        : null,
    ];
  }

  /** @param {number} seq @param {{ value?: any }} entry @param {{ value?: any } | undefined} before */
  function since(seq, entry, before) {
    if (!entry.value || !before?.value || entry.value.kind !== before.value.kind) return null;
    return h("div", { class: "since" }, h("h3", null, `Since #${seq - 1}`), diffView(diff(before.value.body, entry.value.body), 12));
  }

  return { view };
}

/** Positions to compare with: the neighbours and the first. @param {number} at @param {number} total @returns {[string, string][]} */
function range(at, total) {
  const near = [at - 1, at - 2, at - 5, at - 10, at - 100, 1, total].filter((seq) => seq >= 1 && seq <= total && seq !== at);
  return [...new Set(near)].sort((a, b) => b - a).map((seq) => [String(seq), `#${seq}`]);
}
