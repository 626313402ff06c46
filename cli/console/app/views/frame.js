// Frame of every screen: top bar, navigation, search, live indicator, keyboard help.
import { get, signOut } from "../api.js";
import { h } from "../h.js";
import { areKeysOn, HELP, toggleKeys } from "../keys.js";
import { describe, togglePause } from "../live.js";
import { can, has, rerender, saveSetting, set, setting, store } from "../store.js";
import { count } from "../format.js";
import { copyMenu, dialog } from "../parts/dialog.js";

/** Navigation: route, label, name of its count, lowest role. A route is the feature of the API that its screen needs. @type {[string, string, string, string][]} */
const ENTRIES = [
  ["", "Overview", "", "viewer"],
  ["tasks", "Tasks", "", "viewer"],
  ["inbox", "Inbox", "inbox", "approver"],
  ["agents", "Agents", "", "viewer"],
  ["webhooks", "Webhooks", "webhooks", "viewer"],
  ["try", "Try it", "", "operator"],
  ["server", "Server", "", "viewer"],
];
/** Entries of an export that is shown without a server. */
const OFFLINE = ["tasks"];

const THEMES = ["system", "light", "dark"];

/** @param {string} name */
export function theme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  saveSetting("theme", name === "system" ? null : name);
}

/** @param {ScreenView} screen @param {string} opened */
export function frame(screen, opened) {
  const name = opened.split("/")[0];
  const main = h(
    "main",
    {
      id: "main",
      key: `main:${opened}`,
      "data-screen": opened.startsWith("tasks/") && opened !== "tasks/" ? "task" : name,
      "data-state": screen.state(),
      "data-rows": screen.rows?.() ?? null,
    },
    screen.view(),
  );
  if (!store.session) return h("div", { class: "plain", key: "plain" }, main);
  return h(
    "div",
    { class: "frame", key: "frame" },
    h("a", { class: "skip", href: "#main", onclick: skip }, "Skip to the content"),
    topBar(),
    navigation(name),
    main,
    bottomBar(name),
  );
}

/** Focus moves without a change of the route, which is in the fragment. @param {Event} event */
function skip(event) {
  event.preventDefault();
  const heading = /** @type {HTMLElement | null} */ (document.querySelector("main h1"));
  heading?.focus();
}

function topBar() {
  const live = describe();
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    const input = event.target.elements.q;
    if (input.value.trim()) location.hash = `#/find/${encodeURIComponent(input.value.trim())}`;
    input.value = "";
    input.blur();
  };
  return h(
    "header",
    { class: "top", key: "top" },
    h(
      "a",
      { class: "brand", href: "#/" },
      h("span", { class: "logo", "aria-hidden": "true" }, "◈"),
      " Attache",
      h("span", { class: "server-name" }, store.session?.server.name ?? ""),
    ),
    !has("tasks")
      ? h("span", { class: "grow" })
      : h(
          "search",
          null,
          h(
            "form",
            { onsubmit: submit },
            h("label", { class: "hidden", for: "search" }, "Find a task, conversation or agent"),
            h("input", {
              id: "search",
              name: "q",
              type: "search",
              placeholder: "Find a task, conversation, agent…",
              autocomplete: "off",
              spellcheck: "false",
            }),
            h("kbd", { "aria-hidden": "true" }, "/"),
          ),
        ),
    store.offline
      ? h("span", { class: "live" }, "export, without a server")
      : h(
          "button",
          {
            type: "button",
            class: `live l-${store.live.kind}`,
            title: "Pause or continue live updates (l)",
            "aria-pressed": String(store.live.kind === "paused"),
            onclick: togglePause,
          },
          h("span", { class: "glyph", "aria-hidden": "true" }, live.glyph),
          " ",
          h("span", { class: "word" }, live.text),
        ),
    h(
      "button",
      { type: "button", class: "who", "aria-haspopup": "dialog", "data-action": "account", onclick: account },
      h("span", { class: "word" }, `${store.session?.operator.replace(/^key:/, "")} · ${store.session?.role}`),
      h("span", { class: "short", "aria-hidden": "true" }, "☰"),
      h("span", { class: "hidden" }, " menu"),
    ),
  );
}

const entries = () =>
  ENTRIES.filter(
    ([route, , , role]) => can(role) && (!route || route === "server" || has(route)) && (!store.offline || OFFLINE.includes(route)),
  );

/** @param {string} current */
function navigation(current) {
  return h(
    "nav",
    { class: "side", "aria-label": "Screens", key: "side" },
    entries().map((entry) => item(entry, current)),
  );
}

/** @param {string} current */
function bottomBar(current) {
  const first = ["inbox", "tasks", "agents", "webhooks"];
  const shown = first.flatMap((route) => entries().filter((entry) => entry[0] === route));
  return h(
    "nav",
    { class: "bottom", "aria-label": "Main screens", key: "bottom" },
    shown.map((entry) => item(entry, current)),
    h("button", { type: "button", "aria-haspopup": "dialog", onclick: account }, "More"),
  );
}

/** @param {[string, string, string, string]} entry @param {string} current */
function item([route, label, counted], current) {
  const number = counted ? store.counts[counted] : 0;
  return h(
    "a",
    { href: `#/${route}`, "data-nav": route || "overview", "aria-current": (route || "overview") === current ? "page" : null },
    label,
    number
      ? [" ", h("span", { class: "badge" }, count(number)), h("span", { class: "hidden" }, counted === "inbox" ? " open" : " failed")]
      : null,
  );
}

/** Menu of the account: role, theme, keys, sign-out; below 760 px also the other screens. */
function account() {
  dialog(
    "Menu",
    (close, redraw) => [
      h(
        "nav",
        { class: "choices narrow-only", "aria-label": "All screens" },
        entries().map(([route, label]) => h("a", { class: "button", href: `#/${route}`, onclick: () => close() }, label)),
      ),
      h("p", null, store.session?.operator, " · role ", h("strong", null, store.session?.role ?? "")),
      h(
        "fieldset",
        null,
        h("legend", null, "Theme"),
        THEMES.map((one) =>
          h(
            "label",
            { class: "inline" },
            h("input", {
              type: "radio",
              name: "theme",
              checked: setting("theme", "system") === one,
              onchange: () => (theme(one), redraw()),
            }),
            ` ${one}`,
          ),
        ),
      ),
      h(
        "label",
        { class: "inline" },
        h("input", { type: "checkbox", checked: areKeysOn(), onchange: () => (toggleKeys(), redraw()) }),
        " Single-key shortcuts",
      ),
      h(
        "div",
        { class: "choices" },
        h("button", { type: "button", onclick: () => (close(), help()) }, "Keyboard help"),
        h(
          "button",
          { type: "button", onclick: () => (close(), copyMenu([{ label: "link", text: location.href }])) },
          "Copy link of this screen",
        ),
        store.offline ? null : h("button", { type: "button", "data-action": "sign-out", onclick: () => (close(), signOut()) }, "Sign out"),
      ),
      h("p", { class: "soft small" }, `Attache ${store.session?.server.version ?? ""}`),
    ],
    { name: "account" },
  );
}

export function help() {
  dialog(
    "Keys",
    () =>
      h(
        "dl",
        { class: "keys" },
        HELP.map(([key, meaning]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, meaning))),
      ),
    { name: "keys" },
  );
}

let isCounting = false;
/** Reads the counts of the navigation, at most once at a time. */
export async function refreshCounts() {
  if (isCounting || !store.session || store.offline) return;
  isCounting = true;
  try {
    const read = async (/** @type {boolean} */ isWanted, /** @type {string} */ path, /** @type {any} */ query) =>
      isWanted ? get(path, query).catch(() => null) : null;
    const inbox = await read(has("inbox"), "/inbox", { limit: 1 });
    const webhooks = await read(has("webhooks") && can("viewer"), "/webhooks", { state: "failed", limit: 1 });
    set({ counts: { inbox: total(inbox), webhooks: total(webhooks) } });
  } finally {
    isCounting = false;
  }
  rerender();
}

/** @param {any} page */
export const total = (page) => page?.total?.value ?? page?.items?.length ?? 0;
