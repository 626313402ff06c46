// Inbox: open questions, approvals, tools of the client and credentials. One answer wins: the form carries the position of the question.
import { apiCommand, get, post, seg } from "../api.js";
import { h } from "../h.js";
import { age, count, duration, lock, shortId, text, when } from "../format.js";
import { href, open, replace } from "../route.js";
import { can, rerender, resource, store } from "../store.js";
import { button, command, empty, errorBox, facts, loading, staleNote } from "../parts/common.js";
import { toast } from "../parts/dialog.js";
import { json, oneLine, treeState } from "../parts/json.js";
import { markdown } from "../parts/markdown.js";

const KINDS = ["approval", "question", "tool", "credentials"];
/** @type {Record<string, string>} */
const GLYPHS = { approval: "✓", question: "?", tool: "⚒" };

/** @param {Route} route @returns {ScreenView} */
export function inbox(route) {
  let query = route.query;
  let chosen = route.path[0];
  const filters = () => ({ kind: query.get("kind"), agent: query.get("agent") });
  const page = resource((signal) => get("/inbox", { ...filters(), limit: 200 }, signal));
  const audit = can("viewer") ? resource((signal) => get("/audit", { action: "inbox.answer", limit: 5 }, signal)) : undefined;
  /** Draft, error and result of the open item. */
  let draft = blank();
  const tick = setInterval(rerender, 15_000);

  function blank() {
    return {
      item: "",
      reason: "",
      text: "",
      error: /** @type {any} */ (undefined),
      late: /** @type {any} */ (undefined),
      isBusy: false,
      tree: treeState(),
    };
  }
  const current = () =>
    page.data?.items.find((/** @type {any} */ item) => item.task === chosen) ?? (chosen ? undefined : page.data?.items[0]);

  /** @param {any} item @param {any} body */
  async function answer(item, body) {
    if (draft.isBusy) return;
    draft.isBusy = true;
    draft.error = undefined;
    rerender();
    try {
      await post(`/inbox/${seg(item.task)}/${seg(item.requestId)}`, body, { headers: { "If-Match": `"${item.position}"` } });
      toast(body.approved === true ? "Approved" : body.approved === false ? "Denied" : "Answered");
      draft = blank();
      chosen = "";
      replace(href(["inbox"], query));
      await page.reload();
      audit?.reload();
    } catch (error) {
      draft.isBusy = false;
      const failure = /** @type {any} */ (error);
      if (failure.status === 409 || failure.status === 412) draft.late = { ...failure.body?.current, message: failure.message };
      else draft.error = failure;
      rerender();
    }
  }
  const decide = (/** @type {boolean} */ approved) => {
    const item = current();
    if (item?.kind === "approval" && item.answerable !== false && can("answer")) answer(item, { approved, reason: draft.reason });
  };
  const step = (/** @type {number} */ by) => {
    const items = page.data?.items ?? [];
    const index = items.indexOf(current());
    const next = items[Math.max(0, Math.min(items.length - 1, index + by))];
    if (next) replace(href(["inbox", next.task], query));
  };

  return {
    title: "Inbox",
    state: () => (page.error && page.data ? "stale" : page.state),
    rows: () => page.data?.items.length,
    topics: () => ["inbox"],
    resync: () => page.reload(),
    frame: (event) => event === "inbox" && page.reload(),
    route(next) {
      const before = JSON.stringify(filters());
      query = next.query;
      chosen = next.path[0];
      if (JSON.stringify(filters()) !== before) page.reload();
      return true;
    },
    keys: {
      a: () => decide(true),
      d: () => decide(false),
      j: () => step(1),
      k: () => step(-1),
      ArrowDown: () => step(1),
      ArrowUp: () => step(-1),
      Enter: () => current() && open(href(["tasks", current().task])),
    },
    copy: () => [
      { label: "link", text: location.href },
      {
        label: "curl",
        text: current() ? apiCommand("POST", `/tasks/${current().task}/answer`, { text: "…" }) : apiCommand("GET", "/inbox"),
      },
      { label: "JSON", text: () => JSON.stringify(page.data, null, 2) },
    ],
    close() {
      clearInterval(tick);
      page.close();
      audit?.close();
    },
    view() {
      const items = page.data?.items ?? [];
      const item = current();
      if (item && draft.item !== `${item.task}/${item.requestId}` && !draft.late)
        draft = { ...blank(), item: `${item.task}/${item.requestId}` };
      return [
        h(
          "div",
          { class: "title-row" },
          h("h1", { tabindex: "-1" }, "Inbox"),
          h(
            "span",
            { class: "soft", "aria-live": "polite" },
            page.data ? `${count(items.length)} open${items[0] ? `, oldest ${age(items[0].since)}` : ""}` : "",
          ),
          h("div", { class: "actions" }, notifyButton()),
        ),
        h(
          "nav",
          { class: "groups", "aria-label": "Kinds" },
          ["", ...KINDS].map((kind) =>
            h("a", { href: href(["inbox"], { kind }), "aria-current": (query.get("kind") ?? "") === kind ? "page" : null }, kind || "all"),
          ),
        ),
        staleNote(page),
        draft.late ? lateAnswer() : null,
        page.error && !page.data
          ? errorBox(page.error, page.reload)
          : !page.data
            ? loading()
            : !items.length
              ? nothing()
              : h(
                  "div",
                  { class: `inbox ${chosen ? "chosen" : ""}` },
                  h("ol", { class: "items", "aria-label": "Open items" }, items.map(line)),
                  item ? detail(item) : h("p", { class: "soft" }, "This item is not open any more."),
                ),
      ];
    },
  };

  /** @param {any} item */
  function line(item) {
    const isCurrent = item === current();
    return h(
      "li",
      { key: `${item.task}/${item.requestId}`, "data-item": item.task },
      h(
        "a",
        { href: href(["inbox", item.task], query), "aria-current": isCurrent ? "true" : null },
        h(
          "span",
          { class: "kind" },
          h("span", { "aria-hidden": "true" }, item.kind === "credentials" ? lock() : (GLYPHS[item.kind] ?? "?")),
          ` ${item.kind}`,
        ),
        h(
          "span",
          { class: "what" },
          item.kind === "approval" && item.tool ? text(`${item.tool}(${oneLine(item.arguments, 60)})`) : text(oneLine(item.prompt, 90)),
        ),
        h(
          "span",
          { class: "soft small" },
          text(item.agent),
          " · ",
          when(item.since, { relative: true }),
          item.expiresAt ? ` · expires in ${duration(Date.parse(item.expiresAt) - Date.now())}` : "",
        ),
      ),
    );
  }

  /** @param {any} item */
  function detail(item) {
    const mayAnswer = can("answer") && item.answerable !== false && !item.sensitive;
    return h(
      "section",
      { class: "card item", key: `${item.task}/${item.requestId}`, "data-kind": item.kind, "aria-label": "Open item" },
      h("h2", null, headline(item)),
      item.path?.length
        ? h(
            "p",
            { class: "soft" },
            "Asked through ",
            item.path.map((/** @type {any} */ step) => [text(step.agent), " › "]),
            text(item.agent),
          )
        : null,
      h("div", { class: "prompt" }, markdown(item.prompt ?? "")),
      item.kind === "approval" || item.kind === "tool" ? argumentsTable(item) : null,
      item.previous?.approved || item.previous?.denied
        ? h(
            "p",
            { class: "soft" },
            `Same call before: approved ${item.previous.approved ?? 0} ×, denied ${item.previous.denied ?? 0} ×`,
            item.previous.last ? [", last ", when(item.previous.last, { relative: true })] : null,
          )
        : null,
      facts([
        ["For", text(item.caller)],
        ["Task", h("a", { href: href(["tasks", item.task]) }, text(item.title ?? shortId(item.task)))],
        ["Asked", when(item.since, { relative: true })],
        ["Expires", item.expiresAt ? when(item.expiresAt) : null],
      ]),
      draft.error ? errorBox(draft.error) : null,
      mayAnswer
        ? form(item)
        : h(
            "p",
            { class: "note" },
            item.sensitive
              ? "The answer is marked as sensitive. Answers are written to the log, so the console does not take it."
              : item.reason
                ? text(item.reason)
                : "Your role cannot answer.",
          ),
    );
  }

  /** @param {any} item */
  function form(item) {
    const area = (/** @type {string} */ label, /** @type {VProps} */ props = {}) =>
      h(
        "label",
        null,
        label,
        h("textarea", {
          name: "answer",
          rows: "3",
          required: true,
          ...props,
          value: draft.text,
          oninput: (/** @type {any} */ e) => (draft.text = e.target.value),
        }),
      );
    if (item.kind === "approval") {
      return h(
        "div",
        { class: "stack", "data-actions": "" },
        h(
          "p",
          { class: "soft small" },
          "Approve runs ",
          text(item.tool ?? "the call", "code"),
          " once, now. A repeated call needs a new approval.",
        ),
        h(
          "label",
          null,
          "Reason (optional)",
          h("input", {
            name: "reason",
            maxlength: "500",
            value: draft.reason,
            oninput: (/** @type {any} */ e) => (draft.reason = e.target.value),
          }),
        ),
        h(
          "div",
          { class: "buttons" },
          button(["Deny ", h("kbd", { "aria-hidden": "true" }, "d")], {
            class: "danger",
            "data-action": "deny",
            disabled: draft.isBusy,
            onclick: () => answer(item, { approved: false, reason: draft.reason }),
          }),
          button(["Approve ", h("kbd", { "aria-hidden": "true" }, "a")], {
            class: "primary",
            "data-action": "approve",
            disabled: draft.isBusy,
            onclick: () => answer(item, { approved: true, reason: draft.reason }),
          }),
        ),
      );
    }
    if (item.kind === "credentials") {
      return h(
        "div",
        { class: "stack" },
        h("p", { class: "note" }, "Do not type a secret here: answers are written to the log. Follow the instructions, then press Done."),
        h(
          "div",
          { class: "buttons" },
          button("Done", {
            class: "primary",
            "data-action": "send-answer",
            disabled: draft.isBusy,
            onclick: () => answer(item, { text: "done" }),
          }),
        ),
      );
    }
    const isJson = item.kind === "tool" || item.schema;
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      if (!isJson) return answer(item, { text: draft.text });
      try {
        answer(item, { data: JSON.parse(draft.text) });
      } catch (error) {
        if (item.kind === "tool" && !/^\s*[[{]/.test(draft.text)) return answer(item, { text: draft.text });
        draft.error = { message: `The answer is not JSON: ${/** @type {any} */ (error).message}`, code: "invalid_json" };
        rerender();
      }
    };
    return h(
      "form",
      { class: "stack", onsubmit: submit },
      item.choices?.length
        ? h(
            "div",
            { class: "choices", role: "group", "aria-label": "Choices" },
            item.choices.map((/** @type {any} */ choice) =>
              button(text(typeof choice === "string" ? choice : (choice.label ?? choice.value)), {
                "data-choice": typeof choice === "string" ? choice : choice.value,
                onclick: () => answer(item, { text: typeof choice === "string" ? choice : choice.value }),
              }),
            ),
          )
        : null,
      item.schema ? json(item.schema, draft.tree, { depth: 2 }) : null,
      area(item.kind === "tool" ? "Result of the tool (JSON or text)" : isJson ? "Answer (JSON)" : "Answer"),
      h(
        "div",
        { class: "buttons" },
        h("button", { class: "primary", "data-action": "send-answer", disabled: draft.isBusy }, draft.isBusy ? "Sending…" : "Answer"),
      ),
    );
  }

  function lateAnswer() {
    const late = draft.late;
    return h(
      "div",
      { class: "note", role: "alert", "data-late": "" },
      h(
        "p",
        null,
        h("strong", null, "Answered already. "),
        late.answeredBy
          ? [
              text(late.answeredBy, "code"),
              " answered ",
              late.answer ? text(`“${oneLine(late.answer, 80)}”`) : "",
              " ",
              late.time ? when(late.time, { relative: true }) : "",
            ]
          : text(late.message),
      ),
      button("Continue", { onclick: () => ((draft = blank()), (chosen = ""), replace(href(["inbox"], query)), page.reload()) }),
    );
  }

  function nothing() {
    const answers = audit?.data?.items ?? [];
    const demo = store.agents?.find((agent) => /demo/i.test(agent.name));
    return empty(
      h("p", null, "No open questions."),
      answers.length
        ? [
            h("h2", null, "Last answers"),
            h(
              "ul",
              { class: "plain" },
              answers.map((/** @type {any} */ record) =>
                h(
                  "li",
                  null,
                  when(record.time),
                  " ",
                  text(record.operator, "code"),
                  " ",
                  text(record.detail || record.action),
                  " ",
                  record.target
                    ? h("a", { href: href(["tasks", record.target.split("/")[0]]) }, shortId(record.target.split("/")[0]))
                    : null,
                ),
              ),
            ),
          ]
        : null,
      h("p", { class: "soft" }, "An assistant asks before it calls a tool with these lines:"),
      command("[agents.clerk.tools.pay]\napproval = true"),
      demo ? [h("p", { class: "soft" }, "The demo agent asks a question:"), command(`attache send -a ${demo.url} ask`)] : null,
    );
  }
}

/** @param {any} item */
function headline(item) {
  if (item.kind === "approval") return [text(item.agent), " requests a call of ", text(item.tool ?? "a tool", "code")];
  if (item.kind === "tool") return [text(item.agent), " needs the result of ", text(item.tool ?? "a tool", "code")];
  return [text(item.agent), item.kind === "credentials" ? " needs a login" : " asks"];
}

/** @param {any} item */
function argumentsTable(item) {
  const entries = Object.entries(item.arguments ?? {});
  if (!entries.length) return null;
  return h(
    "table",
    { class: "arguments" },
    h("caption", null, "Arguments"),
    h(
      "tbody",
      null,
      entries.map(([name, value]) =>
        h(
          "tr",
          null,
          h("th", { scope: "row" }, text(name)),
          h("td", null, text(typeof value === "string" ? value : JSON.stringify(value))),
        ),
      ),
    ),
  );
}

function notifyButton() {
  if (!("Notification" in self) || Notification.permission !== "default" || !self.isSecureContext) return null;
  return button("Notify me", { onclick: () => Notification.requestPermission().then(rerender) });
}
