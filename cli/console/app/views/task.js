// Task: why it is in its state, its timeline, its wire form in every version, and the state at any entry.
import { h } from "../h.js";
import { count, duration, isFinal, isParked, shortId, since, stateLabel, stateWords, text, titleOf, took, when } from "../format.js";
import { href, open, replace } from "../route.js";
import { can, rerender, store } from "../store.js";
import { button, empty, errorBox, facts, loading, staleNote, tabs } from "../parts/common.js";
import { copyMenu } from "../parts/dialog.js";
import { axis, endOf } from "../parts/axis.js";
import { flame } from "../parts/flame.js";
import { lanes, stateBar } from "../parts/lanes.js";
import { contentState, textOf } from "../parts/content.js";
import { cancelTask, exportTasks, runAgain } from "./task_actions.js";
import { artifactsTab, historyTab, rawTab, webhooksTab } from "./task_content.js";
import { copyEntries } from "./task_copy.js";
import { foldOf, headOf, taskData } from "./task_data.js";
import { entryList } from "./task_list.js";
import { VERSIONS, wirePane } from "./wire.js";

const TIMELINES = ["lanes", "list", "flame"];

/** @param {Route} route @returns {ScreenView} */
export function task(route) {
  const id = route.path[0];
  let query = route.query;
  const data = taskData(id);
  const content = contentState();
  const listing = entryList(data, (seq) => select(seq));
  const wire = wirePane(data, change);
  let isTrueTime = false;
  /** @type {{ label: string, range: [number, number] }[]} */
  let zoomPath = [];
  const tab = () => query.get("view") ?? (matchMedia("(max-width: 760px)").matches ? "list" : "lanes");
  const seq = () => Number(query.get("seq")) || null;

  /** Changes parameters of the route; null removes one. @param {Record<string, string | number | null>} changes */
  function change(changes) {
    const next = new URLSearchParams(query);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null) next.delete(name);
      else next.set(name, String(value));
    }
    replace(href(["tasks", id], next));
  }
  /** @param {number} wanted */
  function select(wanted) {
    change({ seq: Math.max(1, Math.min(wanted, data.total())) });
  }
  const tick = setInterval(() => data.head.data && !isFinal(headOf(data.head.data).state) && rerender(), 1000);

  return {
    title: data.head.data ? titleOf(headOf(data.head.data)) : `Task ${shortId(id)}`,
    state: () =>
      data.head.state === "error" && data.head.data
        ? "stale"
        : data.head.state === "ready" && data.spans.state === "loading"
          ? "loading"
          : data.head.state,
    rows: () => data.total(),
    topics: () => [...(data.head.data ? [data.topic()] : []), "tasks"],
    route(next) {
      if (next.path[0] !== id) return false;
      query = next.query;
      return true;
    },
    resync: () => data.reload(),
    frame(event, frame) {
      if (event === "entries" && frame.task === id) data.append(frame);
    },
    keys: {
      "[": () => select((seq() ?? 2) - 1),
      "]": () => select((seq() ?? 0) + 1),
      j: () => select((seq() ?? 0) + 1),
      k: () => select((seq() ?? 2) - 1),
      ArrowDown: () => select((seq() ?? 0) + 1),
      ArrowUp: () => select((seq() ?? 2) - 1),
      v: () => change({ wire: VERSIONS[(VERSIONS.indexOf(query.get("wire") ?? "event") + 1) % VERSIONS.length] }),
      Escape: () => (query.has("at") ? change({ at: null }) : query.has("seq") ? change({ seq: null }) : open("#/tasks")),
    },
    copy: () => (data.head.data ? copyEntries(headOf(data.head.data), foldOf(data.head.data)) : [{ label: "id", text: id }]),
    close() {
      clearInterval(tick);
      data.close();
    },
    view() {
      this.title = data.head.data ? titleOf(headOf(data.head.data)) : `Task ${shortId(id)}`;
      if (!data.head.data) return data.head.error ? missing(id, data) : [h("h1", { tabindex: "-1" }, `Task ${shortId(id)}`), loading()];
      const head = headOf(data.head.data);
      const fold = foldOf(data.head.data);
      return [
        header(head, data, () => copyMenu(copyEntries(head, fold))),
        staleNote(data.head),
        outcome(head, fold, data.total(), change),
        timelineHead(head),
        tabBar(head, fold),
        h(
          "div",
          { class: `work v-${tab()}`, key: "work" },
          panel(head, fold),
          seq() || query.has("at") || TIMELINES.includes(tab())
            ? wire.view({ query, seq: seq() ?? lastStatus(head, data.total()), total: data.total(), select })
            : null,
        ),
      ];
    },
  };

  /** @param {TaskHead} head */
  function timeline(head) {
    const spans = data.spans.data;
    if (!spans) return null;
    const end = endOf(spans, head, isFinal(head.state));
    const range = zoomPath.at(-1)?.range ?? null;
    return {
      spans,
      end,
      axis: axis(spans, { end, trueTime: isTrueTime, zoom: range }),
      whole: axis(spans, { end, trueTime: isTrueTime, zoom: null }),
    };
  }

  /** @param {TaskHead} head */
  function timelineHead(head) {
    const line = timeline(head);
    return line ? stateBar(line.spans, line.whole, select) : null;
  }

  /** @param {TaskHead} head @param {any} fold */
  function tabBar(head, fold) {
    const named = [
      ["lanes", "Lanes"],
      ["list", "List"],
      ["flame", "Flame"],
      ["history", `History ${fold.history?.length ?? 0}`],
      ["artifacts", `Artifacts ${fold.artifacts?.length ?? 0}`],
      ["webhooks", `Webhooks ${(head.webhooks?.active ?? 0) + (head.webhooks?.failed ?? 0)}`],
      ["raw", "Raw"],
    ];
    const link = (/** @type {string} */ name) => {
      const next = new URLSearchParams(query);
      next.set("view", name);
      return href(["tasks", id], next);
    };
    return h(
      "div",
      { class: "tab-row" },
      tabs(
        named.map(([name, label]) => ({ name, label, href: link(name), isCurrent: tab() === name })),
        "Views of the task",
      ),
      TIMELINES.includes(tab()) && tab() !== "list" && data.spans.data?.gaps.length
        ? h(
            "label",
            { class: "inline" },
            h("input", { type: "checkbox", checked: isTrueTime, onchange: () => ((isTrueTime = !isTrueTime), rerender()) }),
            " true time",
          )
        : null,
    );
  }

  /** @param {TaskHead} head @param {any} fold */
  function panel(head, fold) {
    const name = tab();
    if (name === "history") return historyTab(fold, content);
    if (name === "artifacts") return artifactsTab(head, fold, content, data);
    if (name === "webhooks") return webhooksTab(head);
    if (name === "raw") return rawTab(fold, content);
    if (name === "list") return listing.view(seq());
    const line = timeline(head);
    if (!line) return data.spans.error ? errorBox(data.spans.error, () => data.spans.reload()) : loading();
    if (name === "flame")
      return flame({ ...line, path: zoomPath, selected: seq(), select, zoomTo: (path) => ((zoomPath = path), rerender()) });
    return lanes({
      ...line,
      selected: seq(),
      select,
      isZoomed: zoomPath.length > 0,
      zoom: (range) => ((zoomPath = range ? [{ label: "zoom", range }] : []), rerender()),
    });
  }
}

/** @param {TaskHead} head @param {ReturnType<typeof taskData>} data @param {() => void} copy */
function header(head, data, copy) {
  const usage = head.usage;
  const isOpen = !isFinal(head.state);
  return h(
    "header",
    { class: "task-head" },
    h(
      "div",
      { class: "title-row" },
      h("h1", { tabindex: "-1" }, text(titleOf(head))),
      h("code", { class: "soft", title: head.id, "data-task": head.id }, shortId(head.id)),
      stateLabel(head.state),
      h(
        "div",
        { class: "actions", "data-actions": "" },
        isParked(head.state) && can("answer")
          ? h("a", { class: "button primary", href: href(["inbox", head.id]), "data-action": "answer" }, "Answer")
          : null,
        isOpen && can("operator")
          ? button("Cancel", { "data-action": "cancel", onclick: () => cancelTask(head, () => data.reload()) })
          : null,
        can("operator") ? button("Run again", { "data-action": "run-again", onclick: () => runAgain(head) }) : null,
        button("Copy ▾", { "data-action": "copy", "aria-haspopup": "dialog", onclick: copy }),
        store.offline ? null : button("Export", { "data-action": "export", onclick: () => exportTasks([head.id]) }),
      ),
    ),
    facts([
      ["Agent", store.offline ? text(head.agent) : h("a", { href: href(["agents", head.agent]) }, text(head.agent))],
      ["Caller", text(head.caller)],
      ["Tenant", head.tenant ? text(head.tenant) : null],
      [
        "Conversation",
        h("a", { class: "mono", href: href(["tasks"], { context: head.context }), title: head.context }, shortId(head.context)),
      ],
      ["Opened", when(head.opened, { millis: true })],
      ["Took", [took(head), isParked(head.state) ? `, waiting ${duration(since(head.updated))}` : ""]],
      ["Turns", head.turns ? count(head.turns) : null],
      ["Entries", count(data.total())],
      [
        "Tokens",
        usage?.inputTokens || usage?.outputTokens
          ? `${usage.estimated ? "≈ " : ""}${count(usage.inputTokens)} in, ${count(usage.outputTokens)} out`
          : null,
      ],
      ["Calls", usage?.calls ? count(usage.calls) : null],
      [
        "Parent",
        head.parent
          ? h("a", { href: href(["tasks", head.parent.id]) }, text(head.parent.agent ?? ""), ` ${shortId(head.parent.id)}`)
          : null,
      ],
      ["Children", head.children ? h("a", { href: href(["tasks"], { parent: head.id }) }, count(head.children)) : null],
      ["Version", head.version ? text(head.version) : null],
      ["Trace", head.trace ? h("code", { title: head.trace }, `${head.trace.slice(0, 4)}…`) : null],
    ]),
  );
}

/**
 * The cause of the state in words, first of all: the failure, the question, or the answer.
 * @param {TaskHead} head
 * @param {any} fold
 * @param {number} total
 * @param {(changes: Record<string, string | number | null>) => void} change
 */
function outcome(head, fold, total, change) {
  const message = textOf(fold.status?.message);
  const { tone, word } = stateWords(head.state);
  if (!isFinal(head.state) && !isParked(head.state)) return null;
  const answer = message || (head.state.endsWith("COMPLETED") ? textOf(fold.artifacts?.at(-1)) : "");
  if (!answer && !head.reason) return null;
  const title = /FAILED|REJECTED/.test(head.state)
    ? `Why it ${word.replace("rejected", "was rejected")}`
    : isParked(head.state)
      ? "It waits for"
      : "Answer";
  const lines = answer.length > 400 ? `${answer.slice(0, 400)}…` : answer;
  return h(
    "section",
    { class: `outcome o-${tone}`, "data-outcome": head.state, "aria-label": title },
    h("strong", null, title),
    " ",
    text(lines, "span", { class: "prose" }),
    head.reason ? h("p", { class: "soft small" }, "reason ", text(head.reason, "code")) : null,
    h(
      "p",
      { class: "small" },
      button("Show the entry", {
        class: "link",
        "data-action": "last-entry",
        onclick: () => change({ view: "list", seq: lastStatus(head, total) }),
      }),
    ),
  );
}

/** Position of the last status: the entry before the end of the turn, if the task has ended or waits. @param {TaskHead} head @param {number} total */
const lastStatus = (head, total) => Math.max(Math.min(1, total), isFinal(head.state) || isParked(head.state) ? total - 1 : total);

/** @param {string} id @param {ReturnType<typeof taskData>} data */
function missing(id, data) {
  const error = data.head.error;
  return [
    h("h1", { tabindex: "-1" }, `Task ${shortId(id)}`),
    error.status === 404
      ? empty(
          h("p", null, "No task has the id ", text(id, "code"), "."),
          h(
            "p",
            { class: "soft" },
            "The console looked in all agents and tenants that you may see. Ended tasks are deleted after ",
            h("code", null, "store.max_age"),
            ".",
          ),
          h("p", null, h("a", { href: href(["find", id]) }, "Search for it"), " · ", h("a", { href: "#/tasks" }, "All tasks")),
        )
      : errorBox(error, () => data.reload()),
  ];
}
