// The only global state of the console, and the scheduling of renders.

/** @type {{ session: Session | null, counts: Record<string, number>, live: { kind: string, at: number, next?: number }, agents: any[] | null, offline: boolean, returnTo: string, notice: string }} */
export const store = {
  session: null,
  counts: {},
  live: { kind: "connecting", at: 0 },
  agents: null,
  offline: false,
  returnTo: "",
  notice: "",
};

let isScheduled = false;
/** @type {() => void} */
let draw = () => {};

/** Sets the function that renders the page. @param {() => void} render */
export function onRender(render) {
  draw = render;
}

/** Renders the page once before the next frame. A hidden page has no frames; it renders from a timer. */
export function rerender() {
  if (isScheduled) return;
  isScheduled = true;
  const run = () => {
    isScheduled = false;
    draw();
  };
  if (document.visibilityState === "visible") requestAnimationFrame(run);
  else setTimeout(run, 50);
}

/** Changes the store and renders. @param {Partial<typeof store>} changes */
export function set(changes) {
  Object.assign(store, changes);
  rerender();
}

/** Whether the server has this part of the API. @param {string} feature */
export const has = (feature) => store.session?.server.features.includes(feature) ?? false;

const RANKS = ["approver", "viewer", "operator", "admin"];

/** Whether the operator has at least this role. An approver only sees and answers inbox items. @param {string} role */
export function can(role) {
  const own = store.session?.role ?? "viewer";
  if (store.offline) return role === "viewer";
  if (role === "answer") return own !== "viewer";
  return RANKS.indexOf(own) >= RANKS.indexOf(role);
}

/**
 * Reads a setting of this browser. Storage may be unavailable.
 * @param {string} name
 * @param {string} [fallback]
 */
export function setting(name, fallback = "") {
  try {
    return localStorage.getItem(name) ?? fallback;
  } catch {
    return fallback;
  }
}

/**
 * Stores a setting of this browser; null removes it. Without storage it lasts for this page only.
 * @param {string} name
 * @param {string | null} value
 */
export function saveSetting(name, value) {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    return;
  }
}

/**
 * Loads data for a screen, and keeps the last good data when a later load fails.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {(data: T) => void} [then]
 * @returns {Resource<T>}
 */
export function resource(load, then) {
  let controller = new AbortController();
  /** @type {Resource<T>} */
  const self = {
    data: undefined,
    error: undefined,
    state: "loading",
    async reload() {
      controller.abort();
      const own = (controller = new AbortController());
      if (self.state === "error") self.state = self.data === undefined ? "loading" : "stale";
      rerender();
      try {
        const data = await load(own.signal);
        if (own.signal.aborted) return;
        self.data = data;
        self.error = undefined;
        self.state = "ready";
        then?.(data);
      } catch (error) {
        if (own.signal.aborted) return;
        self.error = error;
        self.state = "error";
      }
      rerender();
    },
    close: () => controller.abort(),
  };
  self.reload();
  return self;
}
