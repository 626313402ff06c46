// Server: readiness, store, listeners, actions of operators.
import { apiCommand, get, post } from "../api.js";
import { h } from "../h.js";
import { count, duration, shortId, since, text, when } from "../format.js";
import { href } from "../route.js";
import { can, has, rerender, resource, store } from "../store.js";
import { button, command, empty, errorBox, facts, loading, staleNote, tabs } from "../parts/common.js";
import { confirm, toast } from "../parts/dialog.js";

/** @param {Route} route @returns {ScreenView} */
export function server(route) {
  let section = route.path[0] ?? "health";
  const info = resource((signal) => get("/server", {}, signal));
  const audit = resource((signal) => get("/audit", { limit: 200 }, signal));
  const reloadConfig = async () => {
    if (
      !(await confirm(
        "Reload the configuration?",
        [h("p", null, "The server reads its file again. Settings that need a restart are named."), command("attache reload")],
        "Reload",
      ))
    )
      return;
    await post("/server/reload", {}).then(
      (reply) => toast(reply.remark ?? "Reloaded"),
      (error) => toast(error.message, true),
    );
    info.reload();
  };
  return {
    title: "Server",
    state: () => (info.error && info.data ? "stale" : info.state),
    topics: () => ["server"],
    resync: () => (info.reload(), audit.reload()),
    frame(event, frame) {
      if (event === "server" && info.data)
        Object.assign(info.data, {
          now: frame.now,
          ready: frame.ready,
          tasks: frame.tasks,
          console: { ...info.data.console, streams: frame.streams },
        });
      rerender();
    },
    route(next) {
      section = next.path[0] ?? "health";
      if (section === "audit") audit.reload();
      return true;
    },
    copy: () => [
      { label: "link", text: location.href },
      { label: "curl", text: apiCommand("GET", "/server") },
      { label: "JSON", text: () => JSON.stringify(info.data, null, 2) },
    ],
    close() {
      info.close();
      audit.close();
    },
    view: () => [
      h(
        "div",
        { class: "title-row" },
        h("h1", { tabindex: "-1" }, "Server"),
        h(
          "div",
          { class: "actions", "data-actions": "" },
          can("admin") && !info.data?.console?.readOnly
            ? button("Reload configuration…", { "data-action": "reload", onclick: reloadConfig })
            : null,
        ),
      ),
      tabs(
        [
          ["health", "Health"],
          ["audit", "Audit"],
          ["about", "About"],
        ].map(([name, label]) => ({ name, label, href: href(["server", name]), isCurrent: section === name })),
        "Parts of the server",
      ),
      staleNote(info),
      info.error && !info.data
        ? errorBox(info.error, info.reload)
        : !info.data
          ? loading()
          : section === "audit"
            ? auditTable(audit)
            : section === "about"
              ? about()
              : health(info.data),
    ],
  };
}

/** @param {any} info */
export function readiness(info) {
  const problems = info.problems ?? [];
  if (info.ready && !problems.length) return h("p", { class: "ready t-ok", "data-ready": "true" }, "✓ ready");
  return h(
    "div",
    { "data-ready": String(info.ready) },
    h("p", { class: "ready t-bad" }, info.ready ? "! ready, with findings" : "✕ not ready"),
    h(
      "ul",
      null,
      problems.map((/** @type {any} */ problem) => h("li", null, text(problem.code, "code"), " ", text(problem.message))),
    ),
  );
}

/** @param {any} info */
function health(info) {
  return [
    readiness(info),
    facts([
      ["Name", text(info.name)],
      ["Version", text(info.version)],
      ["Started", [when(info.startedAt), ` (up ${duration(since(info.startedAt))})`]],
      [
        "Store",
        [
          text(info.store?.kind),
          info.store?.durable === false ? " · in memory: tasks end with the process" : " · durable",
          info.store?.bytes ? ` · ${count(info.store.bytes)} bytes` : "",
        ],
      ],
      ["Agents listen on", text(info.listeners?.agents ?? "–", "code")],
      ["Admin listens on", text(info.listeners?.admin ?? "socket only", "code")],
      ["TLS", info.listeners?.tls ? "on" : "off"],
      ["Agents", has("agents") ? h("a", { href: "#/agents" }, count(info.agents)) : count(info.agents)],
      [
        "Open tasks",
        info.tasks &&
          h(
            "a",
            { href: href(["tasks"], { state: ["submitted", "working", "input-required", "auth-required"] }) },
            count(info.tasks?.open),
          ),
      ],
      ["All tasks", info.tasks && h("a", { href: "#/tasks" }, count(info.tasks.total))],
      [
        "Console",
        [
          `${count(info.console?.sessions)} ${info.console?.sessions === 1 ? "session" : "sessions"}${info.console?.streams === undefined ? "" : `, ${count(info.console.streams)} streams`}`,
          info.console?.readOnly ? " · read-only" : "",
        ],
      ],
      [
        "Message content",
        text(
          { show: "shown", on_request: "hidden until requested; each request is audited", never: "hidden" }[
            /** @type {string} */ (info.console?.content)
          ] ?? info.console?.content,
        ),
      ],
    ]),
    h("p", { class: "soft small" }, "Metrics for Prometheus: ", command("GET /metrics"), " on the admin listener."),
  ];
}

/** @param {Resource<any>} audit */
function auditTable(audit) {
  if (audit.error) return errorBox(audit.error, audit.reload);
  if (!audit.data) return loading();
  if (!audit.data.items.length)
    return empty(h("p", null, "No actions of operators yet. Cancel, answer, retry and sign-in are recorded here."));
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Audit" },
    h(
      "table",
      { class: "grid" },
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          ["time", "operator", "action", "target", "outcome", "detail"].map((name) => h("th", { scope: "col" }, name)),
        ),
      ),
      h(
        "tbody",
        null,
        audit.data.items.map((/** @type {any} */ record) =>
          h(
            "tr",
            { key: record.number, "data-audit": record.action },
            h("td", { "data-label": "time" }, when(record.time)),
            h("td", { "data-label": "operator" }, text(record.operator)),
            h("td", { "data-label": "action" }, text(record.action, "code")),
            h("td", { "data-label": "target" }, target(record)),
            h(
              "td",
              { "data-label": "outcome", class: record.outcome === "ok" ? "t-ok" : "t-bad" },
              `${record.outcome === "ok" ? "✓" : "✕"} ${record.outcome}`,
            ),
            h("td", { "data-label": "detail" }, text(record.detail ?? "")),
          ),
        ),
      ),
    ),
  );
}

/** @param {any} record */
function target(record) {
  const id = String(record.target ?? "").split("/")[0];
  return /^[0-9a-f-]{36}$/.test(id)
    ? h("a", { class: "mono", href: href(["tasks", id]), title: record.target }, shortId(id))
    : text(record.target ?? "");
}

const about = () =>
  h(
    "div",
    null,
    facts([
      ["Version", text(store.session?.server.version)],
      ["Signed in as", text(store.session?.operator)],
      ["Role", text(store.session?.role)],
      ["Session ends", when(store.session?.expiresAt)],
    ]),
    h("p", null, "The console is a client of the admin API. Everything it shows is also a call:"),
    command(apiCommand("GET", "/server")),
    h("p", null, "Documentation of this version: ", command("attache docs admin")),
  );
