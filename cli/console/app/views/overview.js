// Overview: readiness, what needs attention, agents, the last failures.
import { apiCommand, get } from "../api.js";
import { h } from "../h.js";
import { count, duration, since, stateLabel, text, titleOf, when } from "../format.js";
import { href } from "../route.js";
import { has, rerender, resource, set, store } from "../store.js";
import { command, empty, errorBox, loading, staleNote } from "../parts/common.js";
import { agentTable } from "./agents.js";
import { readiness } from "./server.js";
import { GROUPS } from "./task_filters.js";

const REFRESH_MS = 2000;

/** @returns {ScreenView} */
export function overview() {
  const data = resource(
    async (signal) => {
      const [info, counts, agents, failed] = await Promise.all([
        get("/server", {}, signal),
        has("tasks") ? get("/tasks/counts", { by: "state" }, signal) : null,
        has("agents") ? get("/agents", { limit: 500 }, signal) : null,
        has("tasks") ? get("/tasks", { state: ["failed", "rejected"], limit: 8 }, signal) : null,
      ]);
      return {
        info,
        counts: counts && Object.fromEntries(counts.counts.map((/** @type {any} */ one) => [one.value, one.tasks])),
        agents: agents && agents.items,
        failed: failed && failed.items,
      };
    },
    (loaded) => loaded.agents && set({ agents: loaded.agents }),
  );
  let timer = 0;
  const later = () => {
    if (!timer) timer = setTimeout(() => ((timer = 0), data.reload()), REFRESH_MS);
  };
  return {
    title: "Overview",
    state: () => (data.error && data.data ? "stale" : data.state),
    topics: () => ["server", "tasks"],
    resync: () => data.reload(),
    frame(event, frame) {
      if (event === "server" && data.data) Object.assign(data.data.info, { ready: frame.ready, tasks: frame.tasks });
      if (event === "tasks") later();
      rerender();
    },
    copy: () => [
      { label: "link", text: location.href },
      { label: "curl", text: apiCommand("GET", "/server") },
    ],
    close() {
      clearTimeout(timer);
      data.close();
    },
    view: () => [
      h("h1", { tabindex: "-1" }, "Overview"),
      staleNote(data),
      data.data ? content(data.data) : data.error ? errorBox(data.error, data.reload) : loading(),
    ],
  };
}

/** @param {any} data */
function content({ info, counts, agents, failed }) {
  const streams = info.console?.streams === undefined ? "" : ` · ${count(info.console.streams)} streams`;
  return [
    h(
      "div",
      { class: "summary" },
      readiness(info),
      h("p", { class: "soft" }, `v${info.version} · up ${duration(since(info.startedAt))} · ${info.store?.kind ?? ""}${streams}`),
    ),
    counts ? tiles(counts) : null,
    agents ? [h("h2", null, "Agents"), agentTable(agents)] : null,
    failed ? [h("h2", null, "Last failures"), failures(failed, counts, agents)] : null,
  ];
}

/** @param {Record<string, number>} counts @param {string[]} states */
const sum = (counts, states) =>
  states.reduce((all, state) => all + (counts[`TASK_STATE_${state.toUpperCase().replaceAll("-", "_")}`] ?? 0), 0);

/** @param {Record<string, number>} counts */
function tiles(counts) {
  const tile = (/** @type {string} */ label, /** @type {number} */ number, /** @type {string} */ link, /** @type {string} */ tone) =>
    h(
      "a",
      { class: `tile ${number && tone ? `tile-${tone}` : ""}`, href: link, "data-tile": label },
      h("strong", null, count(number)),
      h("span", null, label),
    );
  const group = (/** @type {string} */ name, /** @type {string} */ tone) =>
    tile(name, sum(counts, GROUPS[name]), href(["tasks"], { state: GROUPS[name] }), tone);
  return h(
    "div",
    { class: "tiles" },
    group("in flight", ""),
    group("parked", "ask"),
    has("inbox") ? tile("in the inbox", store.counts.inbox ?? 0, "#/inbox", "ask") : null,
    group("failed", "bad"),
    has("webhooks") ? tile("webhooks failed", store.counts.webhooks ?? 0, "#/webhooks", "bad") : null,
    tile("completed", sum(counts, ["completed"]), href(["tasks"], { state: "completed" }), ""),
  );
}

/** @param {TaskHead[]} failed @param {Record<string, number>} counts @param {any[] | null} agents */
function failures(failed, counts, agents) {
  if (!failed.length) {
    if (Object.values(counts).some((number) => number > 0)) return h("p", { class: "soft" }, "None.");
    return empty(h("p", null, "No tasks yet. Send one:"), command(`attache send -a ${agents?.[0]?.url ?? "http://127.0.0.1:41241"} hello`));
  }
  const line = (/** @type {TaskHead} */ task) =>
    h(
      "li",
      { key: task.id, "data-task": task.id },
      h("a", { href: href(["tasks", task.id]) }, text(titleOf(task))),
      stateLabel(task.state),
      text(task.agent, "span", { class: "soft" }),
      task.reason ? text(task.reason, "code") : null,
      when(task.updated, { relative: true }),
    );
  return h("ul", { class: "found" }, failed.map(line));
}
