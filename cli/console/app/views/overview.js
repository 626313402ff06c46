// Overview: readiness, what needs attention, agents, the last failures.
import { get } from "../api.js";
import { h } from "../h.js";
import { count, duration, since, stateLabel, text, titleOf, when } from "../format.js";
import { href } from "../route.js";
import { rerender, resource, set, store } from "../store.js";
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
        get("/tasks/counts", { by: "state" }, signal),
        get("/agents", { limit: 500 }, signal),
        get("/tasks", { state: ["failed", "rejected"], limit: 8 }, signal),
      ]);
      return {
        info,
        counts: Object.fromEntries(counts.counts.map((/** @type {any} */ one) => [one.value, one.tasks])),
        agents: agents.items,
        failed: failed.items,
      };
    },
    (loaded) => set({ agents: loaded.agents }),
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
      { label: "attache command", text: "attache admin GET /server" },
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
  const sum = (/** @type {string[]} */ states) =>
    states.reduce((all, state) => all + (counts[`TASK_STATE_${state.toUpperCase().replaceAll("-", "_")}`] ?? 0), 0);
  const tile = (/** @type {string} */ label, /** @type {number} */ number, /** @type {string} */ link, /** @type {string} */ tone) =>
    h(
      "a",
      { class: `tile ${number && tone ? `tile-${tone}` : ""}`, href: link, "data-tile": label },
      h("strong", null, count(number)),
      h("span", null, label),
    );
  const hooks = store.counts.webhooks ?? 0;
  return [
    h(
      "div",
      { class: "summary" },
      readiness(info),
      h(
        "p",
        { class: "soft" },
        `v${info.version} · up ${duration(since(info.startedAt))} · ${info.store?.kind ?? ""} · ${count(info.console?.streams)} streams`,
      ),
    ),
    h(
      "div",
      { class: "tiles" },
      tile("in flight", sum(GROUPS["in flight"]), href(["tasks"], { state: GROUPS["in flight"] }), ""),
      tile("parked", sum(GROUPS.parked), href(["tasks"], { state: GROUPS.parked }), "ask"),
      tile("in the inbox", store.counts.inbox ?? 0, "#/inbox", "ask"),
      tile("failed", sum(GROUPS.failed), href(["tasks"], { state: GROUPS.failed }), "bad"),
      tile("webhooks failed", hooks, "#/webhooks", "bad"),
      tile("completed", sum(["completed"]), href(["tasks"], { state: "completed" }), ""),
    ),
    h("h2", null, "Agents"),
    agentTable(agents),
    h("h2", null, "Last failures"),
    failed.length
      ? h(
          "ul",
          { class: "found" },
          failed.map((/** @type {TaskHead} */ task) =>
            h(
              "li",
              { key: task.id, "data-task": task.id },
              h("a", { href: href(["tasks", task.id]) }, text(titleOf(task))),
              " ",
              stateLabel(task.state),
              " ",
              text(task.agent, "span", { class: "soft" }),
              task.reason ? [" ", text(task.reason, "code")] : null,
              " ",
              when(task.updated, { relative: true }),
            ),
          ),
        )
      : sum(["completed"]) + sum(GROUPS["in flight"])
        ? h("p", { class: "soft" }, "None.")
        : empty(h("p", null, "No tasks yet. Send one:"), command(`attache send -a ${agents[0]?.url ?? "http://127.0.0.1:41241"} hello`)),
  ];
}
