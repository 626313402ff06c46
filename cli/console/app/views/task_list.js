// Entries of a task as a table: the full equivalent of the lanes.
import { h } from "../h.js";
import { clock, duration, text } from "../format.js";
import { rerender } from "../store.js";
import { errorBox, select } from "../parts/common.js";
import { list, listState, visible } from "../parts/list.js";

const ROW = 28;

/** @param {ReturnType<typeof import("./task_data.js").taskData>} data @param {(seq: number) => void} choose */
export function entryList(data, choose) {
  const state = listState(ROW);
  let kind = "";
  /** @type {number | null} */
  let shownFor = null;

  /** @param {number | null} selected */
  function view(selected) {
    const all = rows();
    if (selected !== null && selected !== shownFor) reveal(selected, all);
    shownFor = selected;
    const range = visible(state, all.length);
    const needed = kind ? data.total() : range.to;
    if (data.loaded() < Math.min(needed, data.total()) && !data.error()) queueMicrotask(() => data.loadEntries(needed));
    const kinds = [...new Set([...data.entries.values()].map((entry) => entry.kind))].sort();
    return h(
      "div",
      { class: "entries" },
      h(
        "div",
        { class: "toolbar" },
        select(
          "Kind of entry",
          kind,
          [["", "all kinds"], ...kinds.map((one) => /** @type {[string, string]} */ ([one, one]))],
          (value) => ((kind = value), rerender()),
        ),
        h("span", { class: "soft small" }, "[ and ] move between entries"),
      ),
      data.error() ? errorBox(data.error(), () => data.loadEntries(needed)) : null,
      list({
        state,
        total: all.length,
        columns: ["#", "time", "after", "kind", "summary"],
        label: "Entries",
        class: "entry-list",
        row: (index) => row(all[index], selected),
      }),
    );
  }

  /** Positions to show. @returns {number[]} */
  function rows() {
    const result = [];
    for (let seq = 1; seq <= data.total(); seq += 1) if (!kind || data.entries.get(seq)?.kind === kind) result.push(seq);
    return result;
  }

  /** @param {number} selected @param {number[]} all */
  function reveal(selected, all) {
    const index = all.indexOf(selected);
    if (index < 0) return;
    state.active = index;
    const top = index * ROW;
    if (top < state.top || top > state.top + state.height - ROW) state.wanted = state.top = Math.max(0, top - state.height / 2);
  }

  /** @param {number} seq @param {number | null} selected */
  function row(seq, selected) {
    const entry = data.entries.get(seq);
    if (!entry) return { key: `e${seq}`, props: { class: "pending" }, cells: [seq, "…"] };
    const before = data.entries.get(seq - 1);
    const gap = before ? Date.parse(entry.time) - Date.parse(before.time) : 0;
    return {
      key: `e${seq}`,
      props: { "data-seq": seq, class: `k-${entry.kind} ${seq === selected ? "picked" : ""}`, onclick: () => choose(seq) },
      cells: [
        h(
          "button",
          {
            type: "button",
            class: "link",
            "aria-label": `Entry ${seq}`,
            "aria-current": seq === selected ? "true" : null,
            onclick: () => choose(seq),
          },
          seq,
        ),
        h("time", { datetime: entry.time, title: entry.time }, clock(new Date(entry.time), true)),
        seq > 1 && before ? h("span", { class: gap > 1000 ? "t-ask" : "soft" }, `+${duration(gap)}`) : "",
        text(entry.kind, "span", { class: "kind" }),
        text(entry.summary),
      ],
    };
  }

  return { view };
}
