// Keyboard: single keys of the open screen and of the frame. They can be disabled (WCAG 2.1.4).
import { saveSetting, setting } from "./store.js";

/** Letters behind `g`, in the order of the menu. @type {Record<string, string>} */
export const GO = { o: "", t: "tasks", i: "inbox", a: "agents", w: "webhooks", y: "try", s: "server" };

/** Keys and their meaning, for the help. @type {[string, string][]} */
export const HELP = [
  ["/", "search"],
  ["?", "this help"],
  ["g then o t i a w y s", "open Overview, Tasks, Inbox, Agents, Webhooks, Try it, Server"],
  ["j k or ↓ ↑", "next, previous row"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  ["[ ]", "previous, next entry of the task"],
  ["v", "next wire version"],
  ["c", "copy menu"],
  [".", "actions"],
  ["l", "pause or continue live updates"],
  ["n", "show new rows"],
  ["a d", "approve, deny (Inbox)"],
  ["Esc", "close"],
];

export const areKeysOn = () => setting("keys", "on") === "on";
export const toggleKeys = () => saveSetting("keys", areKeysOn() ? "off" : "on");

let isGoing = false;

/**
 * Listens for keys. `lookup` returns the action of a key on the current screen.
 * @param {(key: string) => ((event: KeyboardEvent) => void) | undefined} lookup
 * @param {(screen: string) => void} go
 */
export function listen(lookup, go) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = /** @type {HTMLElement} */ (event.target);
    const isTyping = target.matches?.("input:not([type=checkbox],[type=radio]), textarea, select, [contenteditable]");
    if (isTyping || document.querySelector("dialog[open]")) return;
    const isNamed = event.key.length > 1;
    if (!isNamed && !areKeysOn()) return;
    if (event.key === "Enter" && target.matches?.("a, button, summary, input")) return;
    if (isGoing) {
      isGoing = false;
      if (event.key in GO) {
        event.preventDefault();
        go(GO[event.key]);
        return;
      }
    }
    if (event.key === "g") {
      isGoing = true;
      return;
    }
    const action = lookup(event.key);
    if (action) {
      event.preventDefault();
      action(event);
    }
  });
}
