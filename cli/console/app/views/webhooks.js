// Webhooks: failed and retrying ones, grouped by origin, with attempts and dead letters of one.
import { apiCommand, get, post, remove, seg } from "../api.js";
import { h } from "../h.js";
import { count, duration, shortId, since, text, when } from "../format.js";
import { href, open } from "../route.js";
import { can, rerender, resource } from "../store.js";
import { button, command, empty, errorBox, facts, loading, staleNote } from "../parts/common.js";
import { confirm, dialog, toast } from "../parts/dialog.js";

const GROUP_FROM = 5;
/** Glyph and tone of each state. @type {Record<string, [string, string]>} */
const STATES = { failed: ["✕", "bad"], retrying: ["↻", "ask"], active: ["●", "accent"], done: ["✓", "ok"] };

/** @param {any} hook */
export function webhookState(hook) {
  const [glyph, tone] = STATES[hook.state] ?? ["·", "soft"];
  return h(
    "span",
    { class: `state t-${tone}` },
    h("span", { "aria-hidden": "true" }, glyph),
    ` ${hook.state}`,
    hook.reason ? [": ", text(hook.reason)] : null,
  );
}

/** @param {Route} route @returns {ScreenView} */
export function webhooks(route) {
  let query = route.query;
  let number = route.path[0];
  const state = () => query.get("state") ?? (number ? "" : "failed");
  const filters = () => ({ state: state(), origin: query.get("origin"), agent: query.get("agent") });
  const page = resource((signal) => get("/webhooks", { ...filters(), limit: 500 }, signal));
  const counts = resource(async (signal) => {
    const all = await Promise.all(Object.keys(STATES).map((one) => get("/webhooks", { state: one, limit: 1 }, signal)));
    return Object.fromEntries(Object.keys(STATES).map((one, index) => [one, all[index].total?.value ?? all[index].items.length]));
  });
  let detail = number ? open_(number) : undefined;

  /** @param {string} one */
  function open_(one) {
    return resource((signal) => get(`/webhooks/${seg(one)}`, {}, signal));
  }
  function reload() {
    page.reload();
    counts.reload();
    detail?.reload();
  }

  return {
    title: number ? `Webhook ${number}` : "Webhooks",
    state: () => (page.state === "ready" ? (detail?.state ?? "ready") : page.state),
    rows: () => page.data?.items.length,
    topics: () => ["webhooks"],
    resync: reload,
    frame: (event) => event === "webhooks" && reload(),
    route(next) {
      const before = JSON.stringify(filters());
      query = next.query;
      if (number !== next.path[0]) {
        detail?.close();
        number = next.path[0];
        detail = number ? open_(number) : undefined;
      }
      this.title = number ? `Webhook ${number}` : "Webhooks";
      if (JSON.stringify(filters()) !== before) page.reload();
      return true;
    },
    keys: { Escape: () => number && open(href(["webhooks"], query)) },
    copy: () => [
      { label: "link", text: location.href },
      { label: "attache command", text: "attache push deliveries" },
      { label: "curl", text: apiCommand("GET", number ? `/webhooks/${number}` : "/webhooks?state=failed") },
      { label: "JSON", text: () => JSON.stringify(number ? detail?.data : page.data, null, 2) },
    ],
    close() {
      page.close();
      counts.close();
      detail?.close();
    },
    view: () => [
      h(
        "div",
        { class: "title-row" },
        h("h1", { tabindex: "-1" }, "Webhooks"),
        h(
          "div",
          { class: "actions" },
          can("operator") && counts.data?.failed
            ? button("Retry all failed…", { "data-action": "retry-all", onclick: () => retryAll({}, reload) })
            : null,
        ),
      ),
      h(
        "nav",
        { class: "groups", "aria-label": "States" },
        [...Object.keys(STATES), "all"].map((one) =>
          h(
            "a",
            {
              href: href(["webhooks"], { state: one, origin: query.get("origin") }),
              "data-group": one,
              "aria-current": (state() || "all") === one ? "page" : null,
            },
            one,
            " ",
            counts.data && one !== "all" ? h("span", { class: "number" }, count(counts.data[one])) : null,
          ),
        ),
      ),
      query.get("origin")
        ? h("p", null, h("a", { class: "chip", href: href(["webhooks"], { state: state() }) }, "origin: ", text(query.get("origin")), " ✕"))
        : null,
      staleNote(page),
      number ? (detail?.error ? errorBox(detail.error, detail.reload) : detail?.data ? one(detail.data, reload) : loading()) : null,
      page.error && !page.data ? errorBox(page.error, page.reload) : page.data ? table(page.data.items, counts.data) : loading(),
    ],
  };

  /** @param {any[]} items @param {Record<string, number> | undefined} known */
  function table(items, known) {
    if (!items.length) return number ? null : none(known);
    const byOrigin = Map.groupBy ? Map.groupBy(items, (item) => item.origin) : new Map([["", items]]);
    const isGrouped = items.length >= GROUP_FROM && byOrigin.size > 1 && !query.get("origin");
    return [
      isGrouped
        ? h(
            "ul",
            { class: "origins", "aria-label": "Origins" },
            [...byOrigin].map(([origin, hooks]) => originLine(origin, hooks)),
          )
        : null,
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "group", "aria-label": "Webhooks" },
        h(
          "table",
          { class: "grid" },
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              ["#", "origin", "agent", "task", "state", "delivered", "next try"].map((name) => h("th", { scope: "col" }, name)),
            ),
          ),
          h(
            "tbody",
            null,
            items.map((item) =>
              h(
                "tr",
                { key: item.number, "data-webhook": item.number, class: String(item.number) === number ? "picked" : "" },
                h("td", { "data-label": "#" }, h("a", { href: href(["webhooks", item.number], query) }, item.number)),
                h("td", { "data-label": "origin" }, text(item.origin)),
                h("td", { "data-label": "agent" }, text(item.agent)),
                h("td", { "data-label": "task" }, h("a", { class: "mono", href: href(["tasks", item.task]) }, shortId(item.task))),
                h("td", { "data-label": "state" }, webhookState(item)),
                h("td", { "data-label": "delivered" }, `${count(item.delivered)} of ${count(item.end)}`),
                h("td", { "data-label": "next try" }, nextTry(item)),
              ),
            ),
          ),
        ),
      ),
    ];
  }

  /** @param {string} origin @param {any[]} hooks */
  function originLine(origin, hooks) {
    const failed = hooks.filter((hook) => hook.state === "failed");
    return h(
      "li",
      null,
      h("a", { href: href(["webhooks"], { state: state(), origin }) }, text(origin)),
      `: ${count(hooks.length)} webhooks`,
      failed.length ? [`, ${count(failed.length)} failed (`, text(failed[0].reason ?? ""), ") "] : " ",
      failed.length && can("operator") ? button("Retry", { onclick: () => retryAll({ origin }, reload) }) : null,
    );
  }
}

/** @param {any} item */
const nextTry = (item) => (item.nextAttempt ? `in ${duration(Date.parse(item.nextAttempt) - Date.now())}` : "–");

/** @param {Record<string, number> | undefined} counts */
function none(counts) {
  const active = (counts?.active ?? 0) + (counts?.retrying ?? 0) + (counts?.done ?? 0);
  if (active) return empty(h("p", null, "No failed webhooks."), h("p", { class: "soft" }, `${count(active)} registered and working.`));
  return empty(
    h("p", null, "No webhook is registered. A client registers one to receive the events of a task as HTTP requests:"),
    command("attache push listen -a http://127.0.0.1:41241 --task-id …"),
  );
}

/** @param {any} hook @param {() => void} reload */
function one(hook, reload) {
  const retry = async () => {
    try {
      await post(`/webhooks/${hook.number}/retry`, {});
      toast(`Webhook ${hook.number} is sent again`);
    } catch (error) {
      toast(/** @type {any} */ (error).message, true);
    }
    reload();
  };
  const drop = async () => {
    if (
      !(await confirm(
        `Delete webhook ${hook.number}?`,
        h("p", null, "Its undelivered notifications are lost. The client can register it again."),
        "Delete",
      ))
    )
      return;
    await remove(`/webhooks/${hook.number}`).then(
      () => open("#/webhooks"),
      (error) => toast(error.message, true),
    );
    reload();
  };
  const attempts = hook.attempts ?? [];
  const letters = hook.undelivered ?? [];
  const first = [...attempts].reverse().find((attempt) => attempt.outcome !== "delivered");
  return h(
    "section",
    { class: "card", "data-webhook-detail": hook.number, "aria-label": `Webhook ${hook.number}` },
    h(
      "div",
      { class: "title-row" },
      h("h2", null, `#${hook.number} `, text(hook.origin)),
      webhookState(hook),
      h(
        "div",
        { class: "actions", "data-actions": "" },
        can("operator")
          ? [button("Retry", { class: "primary", "data-action": "retry", onclick: retry }), button("Delete…", { onclick: drop })]
          : null,
      ),
    ),
    facts([
      ["Task", h("a", { class: "mono", href: href(["tasks", hook.task]) }, shortId(hook.task))],
      ["Agent", text(hook.agent)],
      ["Registered by", text(hook.caller)],
      ["Version", text(hook.version)],
      ["Token", hook.hasToken ? "set" : "none"],
      ["Delivered", `${count(hook.delivered)} of ${count(hook.end)}`],
      [
        "Failing since",
        hook.state === "failed" || hook.state === "retrying"
          ? first
            ? [when(first.time), ` (${duration(since(first.time))})`]
            : "before the last start of the server"
          : null,
      ],
      ["Next try", hook.nextAttempt ? nextTry(hook) : null],
    ]),
    h("p", { class: "soft small" }, "Only the origin of the address is shown: the rest may be a secret."),
    h("h3", null, "Attempts"),
    attempts.length
      ? h(
          "ol",
          { class: "attempts" },
          attempts.map((/** @type {any} */ attempt) =>
            h(
              "li",
              { class: attempt.outcome === "delivered" ? "t-ok" : "t-bad" },
              when(attempt.time),
              ` #${attempt.seq} ${attempt.outcome === "delivered" ? "✓" : "✕"} ${attempt.status ?? ""} ${attempt.ms === undefined || attempt.ms === null ? "" : duration(attempt.ms)} `,
              attempt.reason ? text(attempt.reason) : null,
            ),
          ),
        )
      : h("p", { class: "soft" }, "None since the server started."),
    h("h3", null, `Undelivered ${letters.length}`),
    letters.length
      ? h(
          "ol",
          { class: "letters" },
          letters.map((/** @type {any} */ letter) =>
            h(
              "li",
              { "data-letter": letter.seq },
              h(
                "a",
                { href: href(["tasks", hook.task], { view: "list", seq: letter.seq, carrier: "push", wire: hook.version }) },
                `#${letter.seq}`,
              ),
              " ",
              text(letter.kind),
              " ",
              text(letter.summary, "span", { class: "soft" }),
            ),
          ),
        )
      : h("p", { class: "soft" }, "Nothing waits."),
  );
}

/** @param {Record<string, any>} filter @param {() => void} reload */
async function retryAll(filter, reload) {
  try {
    const plan = await post("/webhooks/retry", filter, { query: { dryRun: true } });
    const isSure = await dialog("Retry failed webhooks", (close) => [
      h("p", { "data-dry-run": plan.webhooks }, `${count(plan.webhooks)} webhooks are sent again, each in the order of its log.`),
      command(apiCommand("POST", "/webhooks/retry", filter)),
      h(
        "div",
        { class: "buttons" },
        button("Cancel", { onclick: () => close(false) }),
        button(`Retry ${count(plan.webhooks)}`, { class: "primary", "data-action": "confirm", onclick: () => close(true) }),
      ),
    ]);
    if (!isSure) return;
    const result = await post("/webhooks/retry", filter);
    toast(`${count(result.retried)} webhooks are sent again`);
  } catch (error) {
    toast(/** @type {any} */ (error).message, true);
  }
  reload();
  rerender();
}
