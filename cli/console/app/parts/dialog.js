// Modal dialogs, notices and the copy menu. A dialog is its own root: it keeps its state while the page renders.
import { h, render } from "../h.js";

/**
 * Opens a modal dialog and returns the value it was closed with. `content` is called for each render.
 * @template T
 * @param {string} title
 * @param {(close: (value?: T) => void, redraw: () => void) => VChild} content
 * @param {{ wide?: boolean, name?: string }} [options]
 * @returns {Promise<T | undefined>}
 */
export function dialog(title, content, options = {}) {
  const before = document.activeElement;
  const element = document.createElement("dialog");
  element.className = options.wide ? "wide" : "";
  element.dataset.dialog = options.name ?? "";
  element.setAttribute("aria-label", title);
  document.body.append(element);
  return new Promise((resolve) => {
    /** @type {T | undefined} */
    let result;
    const close = (/** @type {T} */ value) => {
      result = value;
      element.close();
    };
    const redraw = () =>
      render(element, [
        h(
          "header",
          null,
          h("h2", null, title),
          h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => close(/** @type {any} */ (undefined)) }, "✕"),
        ),
        h("div", { class: "body" }, content(/** @type {any} */ (close), redraw)),
      ]);
    element.addEventListener("close", () => {
      element.remove();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      resolve(result);
    });
    element.addEventListener("click", (event) => event.target === element && element.close());
    redraw();
    element.showModal();
  });
}

/**
 * Asks before an action. Returns whether it was confirmed.
 * @param {string} title
 * @param {VChild} message
 * @param {string} action
 */
export async function confirm(title, message, action) {
  const answer = await dialog(title, (close) => [
    h("div", null, message),
    h(
      "div",
      { class: "buttons" },
      h("button", { type: "button", onclick: () => close(false) }, "Keep"),
      h(
        "button",
        { type: "button", class: "primary danger", "data-action": "confirm", autofocus: true, onclick: () => close(true) },
        action,
      ),
    ),
  ]);
  return answer === true;
}

/** Announces a message to everyone, for five seconds. @param {string} message @param {boolean} [isError] */
export function toast(message, isError) {
  const region = document.getElementById("toasts");
  if (!region) return;
  const line = document.createElement("div");
  line.className = isError ? "toast bad" : "toast";
  line.textContent = message;
  region.append(line);
  setTimeout(() => line.remove(), isError ? 10_000 : 5_000);
}

/** Copies text; without the clipboard (insecure context) a dialog shows it selected. @param {string} value @param {string} [what] */
export async function copyText(value, what = "text") {
  try {
    await navigator.clipboard.writeText(value);
    toast(`Copied: ${what}`);
  } catch {
    await dialog(`Copy ${what}`, () => [
      h("p", null, "The browser does not allow this page to copy. Press Ctrl-C:"),
      h("textarea", {
        class: "mono",
        readOnly: true,
        rows: "8",
        "aria-label": what,
        value,
        hook: (/** @type {HTMLTextAreaElement} */ e) => e.select(),
      }),
    ]);
  }
}

/** Shows the copy menu. @param {CopyEntry[]} entries */
export async function copyMenu(entries) {
  const entry = await dialog(
    "Copy",
    (close) =>
      h(
        "div",
        { class: "choices" },
        entries.map((one) => h("button", { type: "button", "data-copy": one.label, onclick: () => close(one) }, one.label)),
      ),
    { name: "copy" },
  );
  if (!entry) return;
  const value = typeof entry.text === "function" ? await entry.text() : entry.text;
  await copyText(value, entry.label);
}

/** Saves data as a file. @param {string} name @param {Blob} blob */
export function save(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
