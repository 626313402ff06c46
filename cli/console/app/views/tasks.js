// Tasks: a virtual list over pages of the API. All filters are part of the link.
import { apiCommand, get } from "../api.js";
import { h } from "../h.js";
import { count, shortId, stateLabel, text, titleOf, tokens, took, when } from "../format.js";
import { href, open, replace } from "../route.js";
import { can, rerender, store } from "../store.js";
import { button, command, empty, errorBox, loading } from "../parts/common.js";
import { list, listState, moveTo, visible } from "../parts/list.js";
import { cancelDialog, exportTasks } from "./task_actions.js";
import { filterBar, filtersOf, GROUPS, groupOf } from "./task_filters.js";

const PAGE = 200;
/** Pages of 500 that are read again when the list is shown a second time. */
const REFRESHED_PAGES = 4;
/** Above this number of tasks the scroll bar covers only the loaded rows and the next page. */
const FULL_SCROLL = 20_000;
const COLUMNS = ["", "state", "title", "agent", "caller", "conv.", "entries", "took", "updated", "tokens"];

/** Scroll position and data of each filter, so that "back" returns to the same row. @type {{ key: string, list: any, state: any } | undefined} */
let last;

/** @param {Route} route @returns {ScreenView} */
export function tasks(route) {
  let query = route.query;
  const key = () => filtersOf(query).toString();
  const rowHeight = matchMedia("(max-width: 760px)").matches ? 56 : 32;
  let state = listState(rowHeight);
  let data = page();
  if (last?.key === key() && last.state.rowHeight === rowHeight) {
    data = last.list;
    state = last.state;
    state.wanted = state.top;
  }
  /** @type {Set<string>} */
  const selected = new Set();
  /** @type {Record<string, number>} */
  let counts = {};
  let fresh = 0;
  let countTimer = 0;

  async function loadMore() {
    const own = data;
    if (own.isLoading || own.next === null) return;
    own.isLoading = true;
    rerender();
    try {
      const result = await get("/tasks", { ...Object.fromEntries(group(filtersOf(query))), limit: PAGE, after: own.next });
      own.error = undefined;
      for (const item of result.items) {
        if (own.ids.has(item.id)) continue;
        own.ids.set(item.id, own.items.length);
        own.items.push(item);
      }
      own.next = result.next ?? null;
      own.total = result.total ?? own.total;
    } catch (error) {
      own.error = error;
    }
    own.isLoading = false;
    rerender();
  }

  async function loadCounts() {
    const filters = filtersOf(query);
    filters.delete("state");
    const result = await get("/tasks/counts", { ...Object.fromEntries(group(filters)), by: "state" }).catch(() => null);
    if (result) counts = Object.fromEntries(result.counts.map((/** @type {any} */ one) => [one.value, one.tasks]));
    rerender();
  }

  /** Updates the rows of an earlier visit in their place. Tasks opened since then wait behind the chip. */
  async function refresh() {
    const own = data;
    let after;
    for (let round = 0; round < REFRESHED_PAGES; round += 1) {
      try {
        const result = await get("/tasks", { ...Object.fromEntries(group(filtersOf(query))), limit: 500, after });
        own.error = undefined;
        for (const item of result.items) {
          const index = own.ids.get(item.id);
          if (index !== undefined) own.items[index] = item;
          else if (item.opened > (own.items[0]?.opened ?? "")) fresh += 1;
        }
        after = result.next;
      } catch (error) {
        own.error = error;
      }
      rerender();
      if (!after || own.error || own !== data || (round + 1) * 500 >= own.items.length) return;
    }
  }

  function reload() {
    const fresh_ = page();
    fresh_.keep = data.items;
    data = fresh_;
    fresh = 0;
    loadMore();
    loadCounts();
  }

  const rows = () => (data.items.length || !data.keep ? data.items : data.keep);
  function total() {
    const known = data.total?.value ?? 0;
    if (data.next === null) return rows().length;
    return known <= FULL_SCROLL && known > rows().length ? known : rows().length + (data.next === null ? 0 : 50);
  }

  if (data.items.length) refresh();
  else loadMore();
  loadCounts();

  const openRow = (/** @type {number} */ index) => rows()[index] && open(href(["tasks", rows()[index].id]));
  const toggle = (/** @type {string} */ id) => {
    if (!selected.delete(id)) selected.add(id);
    rerender();
  };

  return {
    title: "Tasks",
    state: () => (data.error ? "error" : !data.items.length && data.next !== null ? "loading" : data.error ? "stale" : "ready"),
    rows: () => data.total?.value ?? data.items.length,
    topics: () => ["tasks"],
    route(next) {
      if (next.path.length) return false;
      const before = key();
      query = next.query;
      if (key() !== before) {
        selected.clear();
        state.wanted = state.top = 0;
        state.active = 0;
        data = page();
        reload();
      }
      return true;
    },
    resync: reload,
    frame(event, frame) {
      if (event !== "tasks") return;
      let hasUnknown = 0;
      for (const change of frame.changes ?? []) {
        const index = data.ids.get(change.id);
        if (index === undefined) hasUnknown += change.opened ? 1 : 0;
        else
          data.items[index] = {
            ...data.items[index],
            state: change.state,
            updated: change.updated,
            entries: change.position ?? data.items[index].entries,
            ended: /COMPLETED|FAILED|CANCELED|REJECTED/.test(change.state) ? change.updated : null,
          };
      }
      fresh += Math.max(hasUnknown, frame.new ?? 0);
      if (fresh && !data.items.length) reload();
      if (!countTimer) countTimer = setTimeout(() => ((countTimer = 0), loadCounts()), 1000);
    },
    keys: {
      j: () => moveTo(state, state.active + 1, rows().length),
      k: () => moveTo(state, state.active - 1, rows().length),
      ArrowDown: () => moveTo(state, state.active + 1, rows().length),
      ArrowUp: () => moveTo(state, state.active - 1, rows().length),
      Enter: () => openRow(state.active),
      x: () => rows()[state.active] && toggle(rows()[state.active].id),
      n: () => fresh && ((state.wanted = state.top = 0), reload()),
      Escape: () => (selected.clear(), rerender()),
    },
    copy: () => [
      { label: "link", text: location.href },
      { label: "curl", text: apiCommand("GET", `/tasks?${filtersOf(query)}`) },
      { label: "JSON", text: () => JSON.stringify(rows(), null, 2) },
    ],
    close() {
      clearTimeout(countTimer);
      last = { key: key(), list: data, state };
    },
    view() {
      const range = visible(state, total());
      if (range.to > data.items.length && data.next !== null && !data.isLoading && !data.error) queueMicrotask(loadMore);
      const filters = filtersOf(query);
      return [
        h(
          "div",
          { class: "title-row" },
          h("h1", { tabindex: "-1" }, "Tasks"),
          h(
            "span",
            { class: "soft", "aria-live": "polite" },
            data.total ? `${count(data.total.value)}${data.total.exact === false ? " or more" : ""}` : "",
          ),
        ),
        groups(query, counts),
        filterBar(
          query,
          fresh
            ? button(`${count(fresh)} new`, {
                class: "fresh",
                "data-action": "new",
                title: "Show new rows (n)",
                onclick: () => ((state.wanted = state.top = 0), reload()),
              })
            : null,
        ),
        data.error ? errorBox(data.error, () => ((data.error = undefined), data.items.length ? refresh() : loadMore())) : null,
        !rows().length && data.next === null
          ? nothing(filters)
          : !rows().length
            ? loading()
            : list({ state, total: total(), columns: COLUMNS, label: "Tasks", class: "tasks", row }),
        can("operator") && rows().length ? actionBar(filters) : null,
      ];
    },
  };

  /** @param {number} index */
  function row(index) {
    const item = rows()[index];
    if (!item) return { key: `row-${index}`, cells: [null, "…"], props: { class: "pending" } };
    const title = titleOf(item);
    return {
      key: item.id,
      props: {
        "data-task": item.id,
        class: selected.has(item.id) ? "picked" : "",
        onclick: (/** @type {any} */ event) => {
          if (event.target.closest("a, input, label")) return;
          state.active = index;
          openRow(index);
        },
      },
      cells: [
        can("operator")
          ? h(
              "label",
              { class: "pick" },
              h("input", {
                type: "checkbox",
                "aria-label": `Select ${shortId(item.id)}`,
                checked: selected.has(item.id),
                onchange: () => toggle(item.id),
              }),
            )
          : null,
        stateLabel(item.state),
        h(
          "a",
          { href: href(["tasks", item.id]), class: "title" },
          text(title),
          item.children ? h("span", { class: "soft" }, ` ↳ ${item.children}`) : null,
        ),
        text(item.agent),
        text(item.caller, "span", { class: "soft" }),
        h("a", { class: "mono soft", href: href(["tasks"], { context: item.context }), title: item.context }, shortId(item.context)),
        count(item.entries),
        took(item),
        when(item.updated, { relative: Date.now() - Date.parse(item.updated) < 3_600_000 }),
        tokens(item),
      ],
    };
  }

  /** @param {URLSearchParams} filters */
  function actionBar(filters) {
    const all = data.total?.value ?? rows().length;
    const ids = [...selected];
    return h(
      "div",
      { class: "action-bar", "data-actions": "" },
      ids.length
        ? [
            h("span", null, `${count(ids.length)} selected`),
            button("Cancel…", { "data-action": "cancel-selected", onclick: () => cancelDialog({ ids }, ids.length).then(done) }),
            button("Export", { onclick: () => exportTasks(ids) }),
            button("Clear", { class: "quiet", onclick: () => (selected.clear(), rerender()) }),
          ]
        : [
            h("span", { class: "soft" }, "Select rows, or:"),
            button(`Cancel all ${count(all)} matches…`, {
              "data-action": "cancel-all",
              onclick: () => cancelDialog({ filter: lists(filters) }, all).then(done),
            }),
          ],
    );
  }

  function done() {
    selected.clear();
    reload();
  }
}

/** @returns {{ items: TaskHead[], keep: TaskHead[] | undefined, ids: Map<string, number>, next: string | null | undefined, total: any, isLoading: boolean, error: any }} */
const page = () => ({ items: [], keep: undefined, ids: new Map(), next: undefined, total: undefined, isLoading: false, error: undefined });

/** Parameters with repeated values as arrays. @param {URLSearchParams} params @returns {[string, any][]} */
export const group = (params) =>
  [...new Set(params.keys())].map((name) => [name, params.getAll(name).length > 1 ? params.getAll(name) : params.get(name)]);

/** Filters of a bulk action: each a list. @param {URLSearchParams} params */
const lists = (params) =>
  Object.fromEntries([...new Set(params.keys())].filter((name) => name !== "order").map((name) => [name, params.getAll(name)]));

/** Quick filters with counts. @param {URLSearchParams} query @param {Record<string, number>} counts */
function groups(query, counts) {
  const current = groupOf(query);
  const hasCounts = Object.keys(counts).length > 0;
  return h(
    "nav",
    { class: "groups", "aria-label": "States" },
    Object.entries(GROUPS).map(([name, states]) => {
      const next = new URLSearchParams(query);
      next.delete("state");
      for (const state of states) next.append("state", state);
      const number = Object.entries(counts).reduce(
        (sum, [state, value]) =>
          !states.length || states.includes(state.replace("TASK_STATE_", "").toLowerCase().replaceAll("_", "-"))
            ? sum + Number(value)
            : sum,
        0,
      );
      return h(
        "a",
        { href: href(["tasks"], next), "data-group": name, "aria-current": current === name ? "page" : null },
        name,
        " ",
        hasCounts ? h("span", { class: "number" }, count(number)) : null,
      );
    }),
  );
}

/** @param {URLSearchParams} filters */
function nothing(filters) {
  const names = [...filters.entries()];
  if (names.length) {
    return empty(
      h("p", null, "No task matches these filters."),
      h(
        "p",
        null,
        names.map(([name, value]) => button(`${name}: ${value} ✕`, { class: "chip", onclick: () => drop(filters, name, value) })),
      ),
      h("p", null, h("a", { href: "#/tasks" }, "Show all tasks")),
    );
  }
  const address = store.agents?.[0]?.url ?? "http://127.0.0.1:41241";
  return empty(
    h("p", null, "No tasks yet. Send one:"),
    command(`attache send -a ${address} hello`),
    can("operator") ? h("p", null, h("a", { class: "button primary", href: "#/try" }, "Try it here")) : null,
  );
}

/** @param {URLSearchParams} filters @param {string} name @param {string} value */
function drop(filters, name, value) {
  const next = new URLSearchParams(filters);
  next.delete(name, value);
  replace(href(["tasks"], next));
}
