// Time axis of a task: milliseconds to percent of the width, with long gaps folded and an optional zoom.
import { duration } from "../format.js";

const GAP_SHARE = 0.04;
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 864e5];

/**
 * @param {Spans} spans
 * @param {{ end: number, trueTime: boolean, zoom: [number, number] | null }} options `zoom` in milliseconds
 */
export function axis(spans, { end, trueTime, zoom }) {
  const [from, to] = zoom ?? [0, Math.max(end, 1)];
  const gaps = trueTime ? [] : spans.gaps.filter((gap) => gap.from >= from && gap.to <= to && gap.to > gap.from);
  const folded = gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0);
  const plainTime = Math.max(1, to - from - folded);
  const gapUnits = (plainTime * GAP_SHARE) / Math.max(0.2, 1 - GAP_SHARE * gaps.length);
  const total = plainTime + gaps.length * gapUnits;

  /** @param {number} ms */
  const x = (ms) => {
    let units = Math.min(Math.max(ms, from), to) - from;
    for (const gap of gaps) {
      if (ms >= gap.to) units += gapUnits - (gap.to - gap.from);
      else if (ms > gap.from) units += ((ms - gap.from) / (gap.to - gap.from)) * gapUnits - (ms - gap.from);
    }
    return (100 * units) / total;
  };

  /** Milliseconds at a share of the width. @param {number} share */
  const at = (share) => {
    let low = from;
    let high = to;
    for (let round = 0; round < 40; round += 1) {
      const middle = (low + high) / 2;
      if (x(middle) < share * 100) low = middle;
      else high = middle;
    }
    return low;
  };

  const step = STEPS.find((one) => plainTime / one <= 8) ?? 864e5 * Math.ceil(plainTime / 864e5 / 8);
  /** @type {{ x: number, label: string }[]} */
  const ticks = [];
  for (let ms = Math.ceil(from / step) * step; ms <= to && ticks.length < 40; ms += step) {
    const gap = gaps.find((one) => ms > one.from && ms < one.to);
    if (gap) ms = Math.ceil(gap.to / step) * step - step;
    else ticks.push({ x: x(ms), label: ms === 0 ? "0" : duration(ms) });
  }
  // A label at the right edge would leave the axis.
  const shown = ticks.filter((tick, index) => tick.x < 95 && (index === 0 || tick.x - ticks[index - 1].x > 5));
  return {
    x,
    at,
    from,
    to,
    ticks: shown,
    gaps: gaps.map((gap) => ({ x: x(gap.from), width: x(gap.to) - x(gap.from), label: duration(gap.to - gap.from) })),
  };
}

/** The last moment of a task on its axis. @param {Spans} spans @param {TaskHead} task @param {boolean} isFinal */
export function endOf(spans, task, isFinal) {
  const start = Date.parse(spans.start);
  let end = Math.max(0, Date.parse(task.updated) - start);
  for (const lane of spans.lanes) for (const span of lane.spans) end = Math.max(end, span.to ?? span.from);
  for (const state of spans.states) end = Math.max(end, state.from);
  if (!isFinal) end = Math.max(end, Date.now() - start);
  return Math.max(end, 1);
}
