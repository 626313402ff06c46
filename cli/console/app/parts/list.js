// Virtual table: only the rows in view are elements. Rows have one height; the spacer has the height of all of them.
import { h } from "../h.js";
import { rerender } from "../store.js";

const OVERSCAN = 8;

/**
 * State of a list: scroll position, height and the row with the focus.
 * @param {number} rowHeight
 */
export const listState = (rowHeight) => ({ rowHeight, top: 0, height: 600, active: 0, wanted: /** @type {number | null} */ (null) });

/** Rows in view. @param {ReturnType<typeof listState>} state @param {number} total */
export function visible(state, total) {
  const from = Math.max(0, Math.floor(state.top / state.rowHeight) - OVERSCAN);
  const to = Math.min(total, Math.ceil((state.top + state.height) / state.rowHeight) + OVERSCAN);
  return { from: Math.min(from, total), to };
}

/**
 * @param {{ state: ReturnType<typeof listState>, total: number, columns: VChild[], label: string, class?: string,
 *   row: (index: number) => { key: string, props?: VProps, cells: VChild[] } }} options
 */
export function list({ state, total, columns, label, row, class: extra = "" }) {
  const { from, to } = visible(state, total);
  const rows = [];
  for (let index = from; index < to; index += 1) {
    const { key, props, cells } = row(index);
    rows.push(
      h(
        "div",
        {
          role: "row",
          ...props,
          key,
          class: `row ${index === state.active ? "active" : ""} ${props?.class ?? ""}`,
          "aria-rowindex": index + 2,
          style: { top: `${index * state.rowHeight}px`, height: `${state.rowHeight}px` },
        },
        cells.map((cell, column) => h("div", { role: "cell", class: `c${column}` }, cell)),
      ),
    );
  }
  const scroll = (/** @type {any} */ event) => {
    state.top = event.target.scrollTop;
    rerender();
  };
  const measure = (/** @type {HTMLElement} */ element) => {
    if (state.wanted !== null) {
      element.scrollTop = state.wanted;
      state.wanted = null;
    }
    const height = element.clientHeight;
    if (Math.abs(height - state.height) > 4) {
      state.height = height;
      rerender();
    }
  };
  return h(
    "div",
    { class: `list ${extra}`, role: "table", "aria-label": label, "aria-rowcount": total + 1 },
    h(
      "div",
      { class: "head", role: "rowgroup" },
      h(
        "div",
        { role: "row", class: "row", "aria-rowindex": 1 },
        columns.map((column, index) => h("div", { role: "columnheader", class: `c${index}` }, column)),
      ),
    ),
    h(
      "div",
      { class: "rows", role: "rowgroup", tabindex: "0", "aria-label": label, onscroll: scroll, hook: measure },
      h("div", { class: "spacer", role: "presentation", style: { height: `${total * state.rowHeight}px` } }, rows),
    ),
  );
}

/**
 * Moves the active row and keeps it in view.
 * @param {ReturnType<typeof listState>} state
 * @param {number} index
 * @param {number} total
 */
export function moveTo(state, index, total) {
  state.active = Math.max(0, Math.min(total - 1, index));
  const top = state.active * state.rowHeight;
  if (top < state.top) state.wanted = top;
  else if (top + state.rowHeight > state.top + state.height) state.wanted = top + state.rowHeight - state.height;
  if (state.wanted !== null) state.top = state.wanted;
  rerender();
}
