// Entry: sign-in, routes, one screen at a time, live frames to the open screen.
import { resume, signIn } from "./api.js";
import { render } from "./h.js";
import { listen } from "./keys.js";
import { follow, reconnect, start as startLive, togglePause } from "./live.js";
import { parseRoute } from "./route.js";
import { can, has, onRender, rerender, saveSetting, set, setting, store } from "./store.js";
import { frame, help, refreshCounts, theme } from "./views/frame.js";
import { copyMenu } from "./parts/dialog.js";
import { agents } from "./views/agents.js";
import { find } from "./views/find.js";
import { inbox } from "./views/inbox.js";
import { login } from "./views/login.js";
import { overview } from "./views/overview.js";
import { server } from "./views/server.js";
import { task } from "./views/task.js";
import { tasks } from "./views/tasks.js";
import { tryIt } from "./views/try.js";
import { webhooks } from "./views/webhooks.js";

/** @type {Record<string, (route: Route) => ScreenView>} */
const SCREENS = {
  overview,
  tasks: (route) => (route.path.length ? task(route) : tasks(route)),
  inbox,
  agents,
  webhooks,
  try: tryIt,
  server,
  find,
  login,
};

/** Feature of the API that a screen needs. @type {Record<string, string>} */
const NEEDED = { tasks: "tasks", inbox: "inbox", agents: "agents", webhooks: "webhooks", try: "try", find: "tasks" };

/** @type {ScreenView} */
let screen;
/** Identity of the open screen: its name and, for a task, the id. */
let opened = "";
let isFirst = true;
/** Whether the open screen has not been rendered yet. */
let isNew = false;

/** @param {Route} route */
const identity = (route) => (route.screen === "tasks" ? `tasks/${route.path[0] ?? ""}` : route.screen);

function navigate() {
  const route = parseRoute(location.hash);
  if (!store.session && route.screen !== "login") {
    store.returnTo = location.hash;
    location.replace("#/login");
    return;
  }
  if (route.screen !== "login" && !can("viewer")) route.screen = "inbox";
  else if (NEEDED[route.screen] && !has(NEEDED[route.screen])) route.screen = "overview";
  if (opened === identity(route) && screen?.route?.(route)) {
    rerender();
    return;
  }
  screen?.close?.();
  const make = SCREENS[route.screen] ?? SCREENS.overview;
  opened = identity(route);
  screen = make(route);
  rerender();
  isNew = !isFirst;
  isFirst = false;
}

/** A new screen starts at its heading, for readers of the keyboard and of speech. */
function focusHeading() {
  if (document.querySelector("dialog[open]")) return;
  const heading = /** @type {HTMLElement | null} */ (document.querySelector("main h1"));
  heading?.focus({ preventScroll: true });
}

function draw() {
  const root = document.getElementById("app");
  if (!root || !screen) return;
  document.title = `${screen.title} · ${store.session?.server.name || "Attache"}`;
  const hadHeading = document.activeElement?.matches("main h1");
  render(root, [frame(screen, opened)]);
  // A heading that data replaces keeps the focus.
  if (isNew || (hadHeading && document.activeElement === document.body)) focusHeading();
  isNew = false;
  follow(store.session && !store.offline ? topics() : []);
}

function topics() {
  const own = screen.topics?.() ?? [];
  const frameTopics = can("viewer") ? ["inbox", "webhooks"] : ["inbox"];
  return [...new Set([...own, ...frameTopics])];
}

/** @param {string} event @param {any} data */
function onFrame(event, data) {
  if (event === "resync") screen?.resync?.();
  else screen?.frame?.(event, data);
  if (event === "inbox" || event === "webhooks" || event === "resync") refreshCounts();
  rerender();
}

/** @type {Record<string, (event: KeyboardEvent) => void>} */
const GLOBAL_KEYS = {
  "/": () => /** @type {HTMLElement | null} */ (document.getElementById("search"))?.focus(),
  "?": () => help(),
  l: () => togglePause(),
  c: () => {
    const entries = screen.copy?.() ?? [{ label: "link", text: location.href }];
    copyMenu(entries);
  },
  ".": () =>
    /** @type {HTMLElement | null} */ (
      document.querySelector("main [data-actions] button, main [data-actions] a, main button[data-action]")
    )?.focus(),
};

let isLive = false;
/** Starts live updates after the first sign-in: only a session knows whether the server has a stream. */
function goLive() {
  if (isLive) reconnect();
  else startLive(onFrame);
  isLive = true;
}

async function boot() {
  theme(setting("theme", "system"));
  onRender(draw);
  const route = parseRoute(location.hash);
  const link = route.screen === "login" ? route.path[0] : undefined;
  // The token leaves the address before any request (S80).
  if (link) history.replaceState(null, "", "#/login");
  try {
    if (link) {
      await signIn({ link });
      location.replace("#/");
    } else if (!(await resume())) store.returnTo = route.screen === "login" ? "" : location.hash;
    else if (route.screen === "login") location.replace("#/");
  } catch (error) {
    set({
      notice: link
        ? "This link was used or is older than 60 s. Create another: attache console"
        : String(/** @type {any} */ (error).message),
    });
  }
  if (store.session?.server.features?.includes("offline")) set({ offline: true });
  addEventListener("hashchange", navigate);
  listen(
    (key) => screen.keys?.[key] ?? GLOBAL_KEYS[key],
    (name) => (location.hash = `#/${name}`),
  );
  if (store.session) goLive();
  navigate();
  refreshCounts();
  // The live indicator counts seconds.
  setInterval(() => store.live.kind !== "live" && rerender(), 1000);
  addEventListener("attache-signed-in", () => {
    goLive();
    refreshCounts();
  });
  addEventListener("focus", () => store.live.kind === "polling" && screen.resync?.());
  saveSetting("visited", "yes");
}

boot();
