// Timeline of a task: one lane per turn, call, artifact and webhook. The List view is its full equivalent for screen readers.
import { h } from "../h.js";
import { count, duration, shortId, stateWords, text } from "../format.js";
import { href } from "../route.js";

/** Glyph and name of each kind of lane. @type {Record<string, [string, string]>} */
const KINDS = {
  turn: ["▶", "Turn"],
  model: ["✦", "model"],
  tool: ["⚒", "tool"],
  agent: ["⇄", "agent"],
  wait: ["?", "waiting"],
  waiting: ["?", "waiting"],
  artifact: ["▤", "artifact"],
  push: ["↗", "webhook"],
  webhook: ["↗", "webhook"],
  message: ["✉", "message"],
  cancel: ["⊘", "cancel"],
  ignored: ["·", "ignored"],
  status: ["◇", "status"],
};

/**
 * @param {{ spans: Spans, axis: ReturnType<typeof import("./axis.js").axis>, end: number, selected: number | null, select: (seq: number) => void,
 *   zoom: (range: [number, number] | null) => void, isZoomed: boolean }} options
 */
export function lanes({ spans, axis, end, selected, select, zoom, isZoomed }) {
  return h(
    "div",
    { class: "lanes", role: "group", "aria-label": "Timeline. The List view has the same entries as a table." },
    h(
      "div",
      { class: "lane axis", "aria-hidden": "true" },
      h(
        "div",
        { class: "label" },
        isZoomed ? h("button", { type: "button", class: "quiet", tabindex: "-1", onclick: () => zoom(null) }, "⤢ whole task") : null,
      ),
      h(
        "div",
        { class: "track" },
        axis.ticks.map((tick) => h("span", { class: "tick", style: { left: `${tick.x}%` } }, tick.label)),
        axis.gaps.map((gap) =>
          h(
            "span",
            { class: "gap-label", style: { left: `${gap.x + gap.width / 2}%` }, title: `${gap.label} without an entry, folded` },
            `⋯ ${gap.label}`,
          ),
        ),
      ),
    ),
    h(
      "div",
      { class: "lane-rows" },
      spans.lanes.map((lane, index) => laneRow(lane, index, axis, end, selected, select)),
    ),
    overview(spans, end, zoom, axis),
  );
}

/**
 * @param {Lane} lane
 * @param {number} index
 * @param {ReturnType<typeof import("./axis.js").axis>} axis
 * @param {number} end
 * @param {number | null} selected
 * @param {(seq: number) => void} select
 */
function laneRow(lane, index, axis, end, selected, select) {
  const [glyph, kind] = KINDS[lane.lane] ?? ["·", lane.lane];
  const isInner = ["model", "tool", "agent"].includes(lane.lane);
  const name = lane.label.toLowerCase().startsWith(kind.toLowerCase()) ? lane.label : `${kind} ${lane.label}`.trim();
  return h(
    "div",
    { class: `lane k-${lane.lane}`, key: `${lane.lane}:${lane.label}:${index}`, "data-lane": lane.lane },
    h(
      "div",
      { class: `label ${isInner ? "inner" : ""}`, title: `${name} ${lane.detail ?? ""}` },
      h("span", { class: "glyph", "aria-hidden": "true" }, glyph),
      " ",
      lane.child ? h("a", { href: href(["tasks", lane.child.id]) }, text(name), ` ${shortId(lane.child.id)}`) : text(name),
      lane.detail ? [" ", text(lane.detail, "span", { class: "soft" })] : null,
    ),
    h(
      "div",
      { class: "track" },
      axis.gaps.map((gap) => h("span", { class: "gap", style: { left: `${gap.x}%`, width: `${gap.width}%` } })),
      lane.spans.map((span) => spanBar(lane, name, span, axis, end, selected, select)),
    ),
  );
}

/**
 * @param {Lane} lane
 * @param {string} name
 * @param {Span} span
 * @param {ReturnType<typeof import("./axis.js").axis>} axis
 * @param {number} end
 * @param {number | null} selected
 * @param {(seq: number) => void} select
 */
function spanBar(lane, name, span, axis, end, selected, select) {
  const to = span.to ?? end;
  if (to < axis.from || span.from > axis.to) return null;
  const left = axis.x(span.from);
  const width = Math.max(0, axis.x(to) - left);
  const isPoint = to - span.from <= 0 || lane.lane === "artifact";
  const isSelected = selected !== null && span.seq.length > 0 && selected >= span.seq[0] && selected <= (span.seq[1] ?? span.seq[0]);
  const state = [span.to === null ? "open" : "", span.state ?? "", span.kind ?? ""].join(" ");
  const label = [
    name,
    span.state,
    span.kind,
    span.attempt && span.attempt > 1 ? `attempt ${span.attempt}` : "",
    span.count && span.count > 1 ? `${count(span.count)} entries` : "",
    isPoint ? "" : duration(to - span.from),
    `#${span.seq.join("–")}`,
  ]
    .filter(Boolean)
    .join(" · ");
  return h(
    "button",
    {
      type: "button",
      tabindex: "-1",
      class: `span ${isPoint && width < 0.4 ? "point" : ""} ${state} ${isSelected ? "selected" : ""}`,
      "data-seq": span.seq[0],
      title: label,
      "aria-label": label,
      "aria-pressed": String(isSelected),
      style: { left: `${left}%`, width: `${width}%` },
      onclick: () => select(span.seq[0]),
    },
    !isPoint && width > 8 ? h("span", { class: "in" }, duration(to - span.from)) : null,
  );
}

/**
 * Strip of the whole task. Dragging over it zooms.
 * @param {Spans} spans
 * @param {number} end
 * @param {(range: [number, number] | null) => void} zoom
 * @param {ReturnType<typeof import("./axis.js").axis>} axis
 */
function overview(spans, end, zoom, axis) {
  const share = (/** @type {PointerEvent} */ event, /** @type {HTMLElement} */ element) => {
    const box = element.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  const start = (/** @type {PointerEvent} */ event) => {
    const element = /** @type {HTMLElement} */ (event.currentTarget);
    const from = share(event, element);
    element.setPointerCapture(event.pointerId);
    element.onpointerup = (done) => {
      element.onpointerup = null;
      const to = share(done, element);
      if (Math.abs(to - from) > 0.005) zoom([Math.min(from, to) * end, Math.max(from, to) * end]);
      else zoom(null);
    };
  };
  const bars = spans.lanes
    .filter((lane) => lane.lane !== "status")
    .flatMap((lane, row) =>
      lane.spans.slice(0, 100).map((span) => ({
        row,
        kind: lane.lane,
        left: (100 * span.from) / end,
        width: Math.max(0.3, (100 * ((span.to ?? end) - span.from)) / end),
      })),
    );
  const rows = Math.max(1, spans.lanes.length);
  return h(
    "div",
    { class: "lane overview", "aria-hidden": "true" },
    h("div", { class: "label soft" }, "drag to zoom"),
    h(
      "div",
      { class: "track", onpointerdown: start },
      bars.slice(0, 300).map((bar) =>
        h("span", {
          class: `mini k-${bar.kind}`,
          style: { left: `${bar.left}%`, width: `${Math.min(bar.width, 100 - bar.left)}%`, top: `${(100 * bar.row) / rows}%` },
        }),
      ),
      h("span", { class: "window", style: { left: `${(100 * axis.from) / end}%`, width: `${(100 * (axis.to - axis.from)) / end}%` } }),
    ),
  );
}

/**
 * Bar of the states over time, with the source of each change.
 * @param {Spans} spans
 * @param {ReturnType<typeof import("./axis.js").axis>} axis
 * @param {(seq: number) => void} select
 */
export function stateBar(spans, axis, select) {
  const states = spans.states;
  return h(
    "ol",
    { class: "state-bar", "aria-label": "States over time" },
    states.map((one, index) => {
      const from = axis.x(one.from);
      const to = axis.x(states[index + 1]?.from ?? axis.to);
      const { word, glyph, tone } = stateWords(one.state);
      const label = `${word}${one.by ? ` by ${one.by}` : ""}, ${duration((states[index + 1]?.from ?? axis.to) - one.from)}`;
      return h(
        "li",
        { class: `s-${tone}`, style: { left: `${from}%`, width: `${Math.max(to - from, 0.6)}%` }, title: label },
        h(
          "button",
          { type: "button", "aria-label": label, onclick: () => one.seq && select(one.seq) },
          h("span", { "aria-hidden": "true" }, to - from > 12 ? `${glyph} ${word}` : to - from > 2 ? glyph : ""),
        ),
      );
    }),
  );
}
