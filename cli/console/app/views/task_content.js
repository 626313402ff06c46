// Content of a task: messages, artifacts assembled and as chunks, webhooks, the folded task.
import { get } from "../api.js";
import { h } from "../h.js";
import { count, text, when } from "../format.js";
import { href } from "../route.js";
import { rerender, resource } from "../store.js";
import { button, command, empty, errorBox, loading } from "../parts/common.js";
import { partView } from "../parts/content.js";
import { json, treeState } from "../parts/json.js";
import { webhookState } from "./webhooks.js";

/** @typedef {ReturnType<typeof import("../parts/content.js").contentState>} ContentState */

/** @param {any} fold @param {ContentState} state */
export function historyTab(fold, state) {
  const messages = [...(fold.history ?? [])];
  if (fold.status?.message && !messages.some((one) => one.messageId === fold.status.message.messageId)) messages.push(fold.status.message);
  if (!messages.length) return empty(h("p", null, "This task has no messages."));
  return h(
    "ol",
    { class: "messages" },
    messages.map((message, index) => {
      const operator = message.metadata?.["attache.operator"];
      const isUser = String(message.role).endsWith("USER");
      return h(
        "li",
        { class: isUser ? "user" : "agent", "data-message": message.messageId },
        h(
          "header",
          null,
          h("strong", null, isUser ? (operator ? "operator" : "caller") : "agent"),
          operator
            ? [" ", text(typeof operator === "string" ? operator : (operator.id ?? operator.name ?? JSON.stringify(operator)), "code")]
            : null,
        ),
        (message.parts ?? []).map((/** @type {any} */ part, /** @type {number} */ n) =>
          h("div", { class: "part" }, partView(part, `m${index}.${n}`, state)),
        ),
      );
    }),
  );
}

/**
 * @param {TaskHead} head
 * @param {any} fold
 * @param {ContentState} state
 * @param {ReturnType<typeof import("./task_data.js").taskData>} data
 */
export function artifactsTab(head, fold, state, data) {
  const artifacts = fold.artifacts ?? [];
  if (!artifacts.length) return empty(h("p", null, "This task has written no artifact."));
  return h(
    "div",
    { class: "artifacts" },
    artifacts.map((/** @type {any} */ artifact) => {
      const id = artifact.artifactId;
      const isOpen = state.source.has(id);
      const toggle = () => {
        if (!state.source.delete(id)) state.source.add(id);
        if (state.source.has(id)) data.loadEntries(data.total());
        rerender();
      };
      return h(
        "article",
        { class: "artifact", "data-artifact": id },
        h(
          "header",
          null,
          h("h2", null, text(artifact.name || id)),
          artifact.description ? text(artifact.description, "span", { class: "soft" }) : null,
          h("span", { class: "grow" }),
          button(isOpen ? "Assembled" : "As chunks", { class: "quiet", "data-action": "chunks", onclick: toggle }),
        ),
        isOpen
          ? chunks(id, data)
          : (artifact.parts ?? []).map((/** @type {any} */ part, /** @type {number} */ n) =>
              h("div", { class: "part" }, partView(part, `a${id}.${n}`, state, { task: head.id, artifact: id, index: n })),
            ),
      );
    }),
  );
}

/** Entries that built an artifact, with `append` and `lastChunk`. @param {string} id @param {ReturnType<typeof import("./task_data.js").taskData>} data */
function chunks(id, data) {
  const entries = [...data.entries.values()].filter((entry) => entry.body?.artifact?.artifactId === id).sort((a, b) => a.seq - b.seq);
  const isPartial = data.loaded() < data.total();
  if (isPartial) queueMicrotask(() => data.loadEntries(data.total()));
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Chunks" },
    h(
      "table",
      null,
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          ["#", "time", "append", "last chunk", "parts"].map((name) => h("th", { scope: "col" }, name)),
        ),
      ),
      h(
        "tbody",
        null,
        entries
          .slice(0, 500)
          .map((entry) =>
            h(
              "tr",
              { key: entry.seq, "data-seq": entry.seq },
              h("td", null, entry.seq),
              h("td", null, when(entry.time, { millis: true })),
              h("td", null, entry.body.append ? "append" : "replace"),
              h("td", null, entry.body.lastChunk ? "✓ last" : ""),
              h("td", null, text(entry.summary)),
            ),
          ),
      ),
    ),
    entries.length > 500 ? h("p", { class: "soft" }, `The first 500 of ${count(entries.length)} chunks. The List view has all.`) : null,
    isPartial ? loading("Loading entries…") : null,
  );
}

/** @type {{ id: string, resource: Resource<any> } | undefined} */
let hooks;

/** @param {TaskHead} head */
export function webhooksTab(head) {
  if (hooks?.id !== head.id) {
    hooks?.resource.close();
    hooks = { id: head.id, resource: resource((signal) => get("/webhooks", { task: head.id, limit: 100 }, signal)) };
  }
  const { data, error, reload } = hooks.resource;
  if (error) return errorBox(error, reload);
  if (!data) return loading();
  if (!data.items.length)
    return empty(
      h("p", null, "No webhook is registered for this task. A webhook receives each event as an HTTP request:"),
      command(`attache push listen -a … --task-id ${head.id}`),
    );
  return h(
    "ul",
    { class: "hooks" },
    data.items.map((/** @type {any} */ hook) =>
      h(
        "li",
        null,
        h("a", { href: href(["webhooks", hook.number]) }, `#${hook.number} `, text(hook.origin)),
        " ",
        webhookState(hook),
        ` · ${count(hook.delivered)} of ${count(hook.end)} delivered`,
      ),
    ),
  );
}

/** @param {any} fold @param {ContentState} state */
export function rawTab(fold, state) {
  const tree = state.trees.get("raw") ?? treeState();
  state.trees.set("raw", tree);
  return h("div", { class: "document", "data-document": "task" }, json(fold, tree, { depth: 3 }));
}
