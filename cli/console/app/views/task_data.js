// Data of the Task screen: head and fold, spans, entries in pages, one entry for the wire pane.
import { get, seg } from "../api.js";
import { rerender, resource } from "../store.js";

const PAGE = 500;
const REFRESH_MS = 400;

/** @param {string} id */
export function taskData(id) {
  const path = `/tasks/${seg(id)}`;
  /** Entries by position, without gaps from 1 on as far as `loaded`. @type {Map<number, Entry>} */
  const entries = new Map();
  let loaded = 0;
  let isLoading = false;
  /** @type {any} */
  let entriesError;
  /** Position that the event stream continues from: that of the first load. */
  let base = 0;
  let lastPosition = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  const head = resource(
    (signal) => get(path, {}, signal),
    (data) => {
      const position = data.position ?? headOf(data).entries;
      if (!base) base = position || 1;
      lastPosition = Math.max(lastPosition, position);
    },
  );
  const spans = resource((signal) => get(`${path}/spans`, { width: 1200 }, signal));

  async function loadEntries(/** @type {number} */ upTo) {
    if (isLoading || loaded >= Math.min(upTo, lastPosition || upTo)) return;
    isLoading = true;
    try {
      const page = await get(`${path}/events`, { after: loaded || undefined, limit: PAGE });
      for (const entry of page.items) add(entry);
      if (!page.items.length) lastPosition = loaded;
      entriesError = undefined;
    } catch (error) {
      entriesError = error;
    }
    isLoading = false;
    rerender();
  }

  /** @param {Entry} entry */
  function add(entry) {
    entries.set(entry.seq, entry);
    while (entries.has(loaded + 1)) loaded += 1;
  }

  /** Reads one entry, from memory or the server. @param {number} seq */
  async function entry(seq) {
    const known = entries.get(seq);
    if (known) return known;
    const page = await get(`${path}/events`, { after: seq > 1 ? seq - 1 : undefined, limit: 1 });
    const found = page.items.find((/** @type {Entry} */ one) => one.seq === seq);
    if (found) entries.set(seq, found);
    return found;
  }

  return {
    path,
    head,
    spans,
    entry,
    entries,
    loadEntries,
    total: () => Math.max(lastPosition, loaded),
    loaded: () => loaded,
    error: () => entriesError,
    topic: () => `task:${id}@${base || 0}`,
    /** @param {any} frame */
    append(frame) {
      for (const one of frame.entries ?? []) {
        if (one.seq <= loaded + 1) add(one);
        lastPosition = Math.max(lastPosition, one.seq);
      }
      if (!timer) timer = setTimeout(() => ((timer = undefined), head.reload(), spans.reload()), REFRESH_MS);
    },
    reload() {
      head.reload();
      spans.reload();
    },
    close() {
      clearTimeout(timer);
      head.close();
      spans.close();
    },
  };
}

/** @param {any} data @returns {TaskHead} */
export const headOf = (data) => data.head;
/** The folded A2A task. @param {any} data */
export const foldOf = (data) => data.task;
