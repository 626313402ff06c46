// Sign-in with an operator key. A one-time link signs in without this form (main.js).
import { signIn } from "../api.js";
import { h } from "../h.js";
import { rerender, set, store } from "../store.js";
import { command, errorBox } from "../parts/common.js";

/** @returns {ScreenView} */
export function login() {
  /** @type {any} */
  let error;
  let isBusy = false;
  const submit = async (/** @type {any} */ event) => {
    event.preventDefault();
    const input = event.target.elements.key;
    isBusy = true;
    error = undefined;
    rerender();
    try {
      await signIn({ key: input.value.trim() });
      const route = store.returnTo && !store.returnTo.startsWith("#/login") ? store.returnTo : "#/";
      set({ returnTo: "" });
      dispatchEvent(new Event("attache-signed-in"));
      location.hash = route;
    } catch (failure) {
      error = failure;
    }
    input.value = "";
    isBusy = false;
    rerender();
  };
  return {
    title: "Sign in",
    state: () => (isBusy ? "loading" : error ? "error" : "ready"),
    view: () =>
      h(
        "div",
        { class: "login" },
        h("h1", { tabindex: "-1" }, h("span", { class: "logo", "aria-hidden": "true" }, "◈"), " Attache"),
        store.notice ? h("p", { class: "notice", role: "status" }, store.notice) : null,
        h(
          "form",
          { onsubmit: submit },
          h("label", { for: "key" }, "Operator key"),
          h("input", {
            id: "key",
            name: "key",
            type: "password",
            required: true,
            autocomplete: "off",
            spellcheck: "false",
            "aria-describedby": "key-help",
          }),
          h("button", { class: "primary", disabled: isBusy, "data-action": "sign-in" }, isBusy ? "Signing in…" : "Sign in"),
        ),
        error ? errorBox(error) : null,
        h(
          "p",
          { id: "key-help", class: "soft" },
          "A caller key does not work here. On the server's machine no key is needed: ",
          command("attache console"),
        ),
      ),
  };
}
