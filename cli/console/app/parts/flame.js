// Flame graph of a task: spans nested by cause (turn, then its calls), width by time. A click zooms; the path leads back.
import { h } from "../h.js";
import { duration, text } from "../format.js";

const ROW = 26;

/**
 * @param {{ spans: Spans, axis: ReturnType<typeof import("./axis.js").axis>, end: number, path: { label: string, range: [number, number] }[],
 *   selected: number | null, zoomTo: (path: { label: string, range: [number, number] }[]) => void, select: (seq: number) => void }} options
 */
export function flame({ spans, axis, end, path, selected, zoomTo, select }) {
  const boxes = nest(spans, end);
  const depth = boxes.reduce((most, box) => Math.max(most, box.depth + 1), 1);
  return h(
    "div",
    { class: "flame" },
    h(
      "nav",
      { class: "crumbs", "aria-label": "Zoom" },
      h("button", { type: "button", class: "quiet", onclick: () => zoomTo([]) }, `Task, ${duration(end)}`),
      path.map((step, index) => [
        " › ",
        h("button", { type: "button", class: "quiet", onclick: () => zoomTo(path.slice(0, index + 1)) }, text(step.label)),
      ]),
    ),
    h(
      "div",
      { class: "ruler", "aria-hidden": "true" },
      axis.ticks.map((tick) => h("span", { class: "tick", style: { left: `${tick.x}%` } }, tick.label)),
    ),
    h(
      "div",
      { class: "flame-rows", style: { height: `${depth * ROW}px` } },
      boxes
        .filter((box) => box.to >= axis.from && box.from <= axis.to)
        .map((box) => {
          const left = axis.x(box.from);
          const width = Math.max(0.3, axis.x(box.to) - left);
          const isSelected = selected !== null && selected >= box.seq[0] && selected <= (box.seq[1] ?? box.seq[0]);
          const open = () => {
            select(box.seq[0]);
            if (box.to > box.from)
              zoomTo([
                ...path.filter((step) => step.range[0] <= box.from && step.range[1] >= box.to && step.label !== box.label),
                { label: box.label, range: [box.from, box.to] },
              ]);
          };
          return h(
            "button",
            {
              type: "button",
              class: `box k-${box.lane} ${box.state} ${isSelected ? "selected" : ""}`,
              "data-seq": box.seq[0],
              title: `${box.label} · ${duration(box.to - box.from)}`,
              style: { left: `${left}%`, width: `${width}%`, top: `${box.depth * ROW}px` },
              onclick: open,
            },
            text(`${box.label} ${duration(box.to - box.from)}`),
          );
        }),
    ),
    boxes.length ? null : h("p", { class: "soft" }, "This task has no turn yet."),
  );
}

/**
 * Spans with their depth: turns first, calls below them, parallel calls below each other.
 * @param {Spans} spans
 * @param {number} end
 */
export function nest(spans, end) {
  /** @type {{ lane: string, label: string, from: number, to: number, seq: number[], state: string, depth: number }[]} */
  const boxes = [];
  const lanes = [
    ...spans.lanes.filter((lane) => lane.lane === "turn"),
    ...spans.lanes.filter((lane) => ["model", "tool", "agent", "wait", "waiting"].includes(lane.lane)),
  ];
  for (const lane of lanes) {
    for (const span of lane.spans) {
      const to = span.to ?? end;
      const isTurn = lane.lane === "turn";
      const over = boxes.filter((box) => box.from < to && box.to > span.from);
      const taken = new Set(over.map((box) => box.depth));
      let depth = isTurn ? 0 : 1;
      while (taken.has(depth)) depth += 1;
      const name = isTurn ? lane.label : `${lane.lane} ${lane.label}`;
      boxes.push({
        lane: lane.lane,
        label: name,
        from: span.from,
        to,
        seq: span.seq,
        state: [span.state, span.kind, span.to === null ? "open" : ""].filter(Boolean).join(" "),
        depth,
      });
    }
  }
  return boxes;
}
