// Try it: a conversation with a configured agent, and every byte of it. The server makes the calls as the caller `key:console`.
import { call, get, readEvents } from "../api.js";
import { h } from "../h.js";
import { bytes, count, duration, isFinal, isParked, safeName, shortId, stateLabel, text } from "../format.js";
import { href, replace } from "../route.js";
import { rerender, resource, set } from "../store.js";
import { button, empty, errorBox, loading, select } from "../parts/common.js";
import { contentState, partView } from "../parts/content.js";
import { copyText, toast } from "../parts/dialog.js";
import { apply, exchangeCurl, exchangeView, saveExchanges } from "./try_wire.js";

const MAX_FILE = 700_000;
const DEMO = ["hello", "stream 5", "ask", "tool", "fail", "slow 5"];

/** @param {Route} route @returns {ScreenView} */
export function tryIt(route) {
  let query = route.query;
  const agents = resource(
    (signal) => get("/agents", { limit: 500 }, signal),
    (data) => set({ agents: data.items }),
  );
  const content = contentState();
  let draft = query.get("text") ?? "";
  let headers = [{ name: "", value: "" }];
  let data = "";
  /** @type {{ name: string, type: string, raw: string, size: number } | null} */
  let file = null;
  let isBusy = false;
  /** @type {any} */
  let error;
  /** Turns of the conversation and their exchanges. @type {any[]} */
  let turns = [];
  /** @type {AbortController | undefined} */
  let controller;
  const name = () => query.get("agent") ?? agents.data?.items[0]?.name;
  const agent = () => agents.data?.items.find((/** @type {any} */ one) => one.name === name());
  const version = () => query.get("version") ?? "1.0";
  const binding = () => query.get("binding") ?? "jsonrpc";
  const isStream = () => query.get("stream") !== "false";

  /** @param {Record<string, string>} changes */
  function change(changes) {
    const next = new URLSearchParams(query);
    next.delete("text");
    for (const [key, value] of Object.entries(changes)) next.set(key, value);
    replace(href(["try"], next));
  }

  /** The open task of the conversation: a parked one takes the next message as its answer. */
  const openTask = () => {
    const last = turns.at(-1)?.task;
    return last && !isFinal(last.status?.state ?? "") ? last : undefined;
  };

  /** @param {string} words */
  async function send(words) {
    /** @type {any[]} */
    const parts = [];
    if (words) parts.push({ text: words });
    if (data.trim()) {
      try {
        parts.push({ data: JSON.parse(data), mediaType: "application/json" });
      } catch (failure) {
        error = { code: "invalid_json", message: `data is not JSON: ${/** @type {any} */ (failure).message}` };
        rerender();
        return;
      }
    }
    if (file) parts.push({ raw: file.raw, filename: file.name, mediaType: file.type || "application/octet-stream" });
    if (!parts.length || isBusy) return;
    const task = openTask();
    const context = turns.at(-1)?.task?.contextId;
    const message = {
      messageId: randomId(),
      role: "ROLE_USER",
      parts,
      ...(task ? { taskId: task.id } : {}),
      ...(context ? { contextId: context } : {}),
    };
    const turn = {
      words: words || (file ? file.name : "data"),
      parts,
      task: task ? { ...task } : undefined,
      message: undefined,
      request: undefined,
      response: undefined,
      events: /** @type {any[]} */ ([]),
      end: undefined,
    };
    turns.push(turn);
    draft = "";
    data = "";
    file = null;
    isBusy = true;
    error = undefined;
    rerender();
    controller = new AbortController();
    try {
      const custom = Object.fromEntries(headers.filter((one) => one.name.trim()).map((one) => [one.name.trim(), one.value]));
      const body = { agent: name(), version: version(), binding: binding(), message, headers: custom, stream: isStream() };
      const response = await call("POST", "/try/send", { body, headers: { Accept: "text/event-stream" }, signal: controller.signal });
      await readEvents(response, (event, raw) => {
        apply(turn, event, raw ? JSON.parse(raw) : {});
        rerender();
      });
    } catch (failure) {
      if (!controller.signal.aborted) error = failure;
    }
    isBusy = false;
    rerender();
  }

  return {
    title: "Try it",
    state: () => (isBusy ? "busy" : error ? "error" : agents.state),
    rows: () => turns.length,
    route(next) {
      const before = name();
      query = next.query;
      if (query.get("text")) draft = query.get("text") ?? "";
      if (name() !== before) turns = [];
      return true;
    },
    copy: () => [
      { label: "link", text: location.href },
      ...(turns.at(-1)?.request ? [{ label: "curl", text: exchangeCurl(turns.at(-1), agent()) }] : []),
      { label: "attache command", text: `attache send -a ${agent()?.url ?? "…"} '${turns.at(-1)?.words ?? draft ?? "hello"}'` },
    ],
    close() {
      controller?.abort();
      agents.close();
    },
    view: () => [
      h(
        "div",
        { class: "title-row" },
        h("h1", { tabindex: "-1" }, "Try it"),
        h(
          "div",
          { class: "actions" },
          turns.length
            ? [
                button("HAR", { onclick: () => saveExchanges(turns, "har", agent()) }),
                button("JSONL", { onclick: () => saveExchanges(turns, "jsonl", agent()) }),
                button("Clear", { "data-action": "clear", onclick: () => ((turns = []), (error = undefined), rerender()) }),
              ]
            : null,
        ),
      ),
      agents.error
        ? errorBox(agents.error, agents.reload)
        : !agents.data
          ? loading()
          : [options(), h("div", { class: "try" }, chat(), wire())],
    ],
  };

  function options() {
    const items = agents.data?.items ?? [];
    return h(
      "div",
      { class: "toolbar" },
      h(
        "label",
        { class: "inline" },
        "agent ",
        select(
          "Agent",
          name() ?? "",
          items.map((/** @type {any} */ one) => one.name),
          (value) => change({ agent: value }),
        ),
      ),
      h(
        "label",
        { class: "inline" },
        "version ",
        select("Version", version(), ["1.0", "0.3", "0.2"], (value) =>
          change({ version: value, ...(value === "0.2" ? { binding: "jsonrpc" } : {}) }),
        ),
      ),
      h(
        "label",
        { class: "inline" },
        "binding ",
        select(
          "Binding",
          binding(),
          version() === "0.2"
            ? [["jsonrpc", "JSON-RPC"]]
            : [
                ["jsonrpc", "JSON-RPC"],
                ["rest", "HTTP+JSON"],
              ],
          (value) => change({ binding: value }),
        ),
      ),
      h(
        "label",
        { class: "inline" },
        h("input", { type: "checkbox", checked: isStream(), onchange: () => change({ stream: String(!isStream()) }) }),
        " stream",
      ),
      h("span", { class: "soft small" }, "as caller key:console"),
    );
  }

  function chat() {
    const isDemo = /demo/i.test(`${agent()?.name} ${agent()?.title}`);
    const examples = (agent()?.skills ?? []).flatMap((/** @type {any} */ skill) => skill.examples ?? []);
    const shown = examples.length ? examples.slice(0, 8) : isDemo ? DEMO : ["hello"];
    return h(
      "section",
      { class: "chat", "aria-label": "Conversation" },
      turns.length
        ? h("ol", { class: "messages", "aria-live": "polite" }, turns.map(turnView))
        : empty(
            h(
              "p",
              null,
              "Send a message to ",
              text(agent()?.title ?? name() ?? "the agent"),
              ". What it receives and returns appears beside.",
            ),
            h(
              "p",
              null,
              shown.map((/** @type {string} */ one) => button(text(one), { class: "chip", "data-example": one, onclick: () => send(one) })),
            ),
          ),
      error ? errorBox(error) : null,
      composer(),
    );
  }

  /** @param {any} turn @param {number} index */
  function turnView(turn, index) {
    const task = turn.task;
    const artifacts = task?.artifacts ?? [];
    const message = turn.message ?? task?.status?.message;
    return [
      h(
        "li",
        { class: "user" },
        h("header", null, h("strong", null, "you")),
        turn.parts.map((/** @type {any} */ part, /** @type {number} */ n) =>
          h("div", { class: "part" }, partView(part, `u${index}.${n}`, content)),
        ),
      ),
      h(
        "li",
        { class: "agent", "data-turn": index, "data-end": turn.end ? "true" : "false" },
        h(
          "header",
          null,
          text(name(), "strong"),
          task
            ? [" ", stateLabel(task.status?.state ?? ""), " ", h("a", { href: href(["tasks", task.id]) }, `task ${shortId(task.id)} ↗`)]
            : null,
          turn.end ? h("span", { class: "soft small" }, ` ${duration(turn.end.ms)}`) : null,
        ),
        artifacts.map((/** @type {any} */ artifact) =>
          h(
            "div",
            { class: "part", "data-artifact": artifact.artifactId },
            (artifact.parts ?? []).map((/** @type {any} */ part, /** @type {number} */ n) =>
              partView(part, `t${index}.${artifact.artifactId}.${n}`, content),
            ),
          ),
        ),
        message
          ? (message.parts ?? []).map((/** @type {any} */ part, /** @type {number} */ n) =>
              h("div", { class: "part" }, partView(part, `s${index}.${n}`, content)),
            )
          : null,
        turn.end?.error ? h("p", { class: "t-bad" }, text(turn.end.error)) : null,
        turn.end && task && isParked(task.status?.state ?? "") && index === turns.length - 1
          ? h("p", { class: "soft small" }, "It waits: the next message is the answer.")
          : null,
        turn.end || turn.events.length ? null : h("p", { class: "soft" }, "…"),
      ),
    ];
  }

  function composer() {
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      send(draft.trim());
    };
    const enter = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
    };
    const pick = async (/** @type {any} */ event) => {
      const chosen = event.target.files[0];
      event.target.value = "";
      if (!chosen) return;
      if (chosen.size > MAX_FILE) return toast(`The file has ${bytes(chosen.size)}; the limit of one call is ${bytes(MAX_FILE)}`, true);
      file = { name: safeName(chosen.name), type: chosen.type, size: chosen.size, raw: base64(new Uint8Array(await chosen.arrayBuffer())) };
      rerender();
    };
    return h(
      "form",
      { class: "composer stack", onsubmit: submit },
      h(
        "label",
        null,
        h("span", { class: "hidden" }, "Message"),
        h("textarea", {
          name: "text",
          rows: "2",
          placeholder: openTask() ? "Answer…" : "Message…",
          value: draft,
          oninput: (/** @type {any} */ e) => (draft = e.target.value),
          onkeydown: enter,
        }),
      ),
      h(
        "details",
        { class: "more" },
        h(
          "summary",
          null,
          `Data, file, headers${headers.filter((one) => one.name).length ? ` (${headers.filter((one) => one.name).length})` : ""}`,
        ),
        h(
          "label",
          null,
          "Data part (JSON)",
          h("textarea", {
            name: "data",
            rows: "2",
            class: "mono",
            value: data,
            oninput: (/** @type {any} */ e) => (data = e.target.value),
          }),
        ),
        h("label", null, "File", h("input", { type: "file", name: "file", onchange: pick })),
        h(
          "fieldset",
          null,
          h("legend", null, "Headers"),
          headers.map((one, index) =>
            h(
              "div",
              { class: "pair" },
              h("input", {
                "aria-label": `Name of header ${index + 1}`,
                placeholder: "X-Header",
                value: one.name,
                oninput: (/** @type {any} */ e) => (one.name = e.target.value),
              }),
              h("input", {
                "aria-label": `Value of header ${index + 1}`,
                placeholder: "value",
                value: one.value,
                oninput: (/** @type {any} */ e) => (one.value = e.target.value),
              }),
            ),
          ),
          button("+ header", { class: "quiet", onclick: () => ((headers = [...headers, { name: "", value: "" }]), rerender()) }),
        ),
      ),
      h(
        "div",
        { class: "buttons" },
        file
          ? h(
              "span",
              { class: "chip" },
              text(file.name),
              ` ${bytes(file.size)}`,
              button("✕", { class: "quiet", "aria-label": "Remove the file", onclick: () => ((file = null), rerender()) }),
            )
          : null,
        isBusy ? button("Stop", { onclick: () => controller?.abort() }) : null,
        h("button", { class: "primary", "data-action": "send", disabled: isBusy }, isBusy ? "Sending…" : "Send"),
      ),
    );
  }

  function wire() {
    return h(
      "section",
      { class: "wire", "aria-label": "Wire", "data-exchanges": count(turns.length) },
      h(
        "header",
        null,
        h("h2", null, "Wire"),
        h("span", { class: "grow" }),
        turns.at(-1)?.request
          ? button("Copy as curl", { "data-action": "copy-curl", onclick: () => copyText(exchangeCurl(turns.at(-1), agent()), "curl") })
          : null,
      ),
      turns.length
        ? h(
            "ol",
            { class: "exchanges" },
            turns.map((turn, index) => exchangeView(turn, index)),
          )
        : h("p", { class: "soft" }, "Requests, responses and events, byte for byte."),
    );
  }
}

/** A random UUID. `crypto.randomUUID` needs a secure context. */
function randomId() {
  const random = crypto.getRandomValues(new Uint8Array(16));
  return `console-${[...random].map((one) => one.toString(16).padStart(2, "0")).join("")}`;
}

/** @param {Uint8Array} data */
function base64(data) {
  let binary = "";
  for (let at = 0; at < data.length; at += 8192) binary += String.fromCharCode(...data.subarray(at, at + 8192));
  return btoa(binary);
}
