// Agents of the server and the page of one: card in every form, tasks, snippets for clients. The origin precedes the name (S42).
import { get, seg } from "../api.js";
import { h } from "../h.js";
import { count, text } from "../format.js";
import { href, open } from "../route.js";
import { can, resource, set } from "../store.js";
import { button, command, empty, errorBox, facts, loading, staleNote, tabs } from "../parts/common.js";
import { copyText } from "../parts/dialog.js";
import { json, treeState } from "../parts/json.js";
import { curl, javascript, python, quote } from "./task_copy.js";

const FORMS = ["hybrid", "1.0", "0.3", "0.2"];

/** @param {any} agent */
export function healthLabel(agent) {
  const health = agent.health ?? { state: "unknown" };
  const isOk = health.state === "ok";
  return h(
    "span",
    { class: isOk ? "t-ok" : health.state === "unknown" ? "soft" : "t-bad" },
    agent.draining ? "◌ draining" : isOk ? "✓ ok" : `✕ ${health.state}`,
    health.reason ? [": ", text(health.reason)] : null,
  );
}

/** @param {Route} route @returns {ScreenView} */
export function agents(route) {
  let name = route.path[0];
  let section = route.path[1] ?? "card";
  let query = route.query;
  const page = resource(
    (signal) => get("/agents", { limit: 500 }, signal),
    (data) => set({ agents: data.items }),
  );
  let tree = treeState();
  let card = name ? loadCard() : undefined;

  function loadCard() {
    const form = query.get("as") ?? "hybrid";
    return resource((signal) => get(`/agents/${seg(name)}/card`, { as: form }, signal));
  }
  const current = () => page.data?.items.find((/** @type {any} */ agent) => agent.name === name);

  return {
    title: name ? `Agent ${name}` : "Agents",
    state: () => (page.state === "ready" ? (name && section === "card" ? (card?.state ?? "ready") : "ready") : page.state),
    rows: () => page.data?.items.length,
    topics: () => ["server"],
    resync: () => page.reload(),
    route(next) {
      const before = `${name} ${query.get("as")}`;
      name = next.path[0];
      section = next.path[1] ?? "card";
      query = next.query;
      this.title = name ? `Agent ${name}` : "Agents";
      if (`${name} ${query.get("as")}` !== before) {
        card?.close();
        tree = treeState();
        card = name ? loadCard() : undefined;
      }
      return true;
    },
    keys: { Escape: () => name && open("#/agents") },
    copy: () => [
      { label: "link", text: location.href },
      ...(current()
        ? [
            { label: "address", text: current().url },
            { label: "attache: card", text: `attache card get ${quote(current().url)}` },
          ]
        : []),
      { label: "JSON", text: () => JSON.stringify(name ? card?.data : page.data, null, 2) },
    ],
    close() {
      page.close();
      card?.close();
    },
    view: () => (name ? one() : all()),
  };

  function all() {
    return [
      h(
        "div",
        { class: "title-row" },
        h("h1", { tabindex: "-1" }, "Agents"),
        h("span", { class: "soft" }, page.data ? count(page.data.items.length) : ""),
      ),
      staleNote(page),
      page.error && !page.data ? errorBox(page.error, page.reload) : page.data ? agentTable(page.data.items) : loading(),
    ];
  }

  function one() {
    const agent = current();
    if (page.data && !agent)
      return [
        h("h1", { tabindex: "-1" }, "Agent"),
        empty(h("p", null, "No agent has the name ", text(name, "code"), "."), h("a", { href: "#/agents" }, "All agents")),
      ];
    if (!agent) return [h("h1", { tabindex: "-1" }, text(name)), page.error ? errorBox(page.error, page.reload) : loading()];
    return [
      h(
        "div",
        { class: "title-row" },
        h("h1", { tabindex: "-1" }, text(agent.origin, "span", { class: "origin" }), " ", text(agent.title || agent.name)),
        healthLabel(agent),
        h(
          "div",
          { class: "actions" },
          can("operator") ? h("a", { class: "button primary", href: href(["try"], { agent: agent.name }) }, "Try it") : null,
        ),
      ),
      facts([
        ["Name", text(agent.name, "code")],
        ["Address", text(agent.url, "code")],
        ["Versions", (agent.versions ?? []).join(", ")],
        ["Tenants", agent.tenants?.length ? text(agent.tenants.join(", ")) : null],
        [
          "Open tasks",
          h(
            "a",
            { href: href(["tasks"], { agent: agent.name, state: ["submitted", "working", "input-required", "auth-required"] }) },
            count(agent.tasks?.open),
          ),
        ],
        ["All tasks", h("a", { href: href(["tasks"], { agent: agent.name }) }, count(agent.tasks?.total))],
      ]),
      tabs(
        [
          ["card", "Card"],
          ["skills", `Skills ${agent.skills?.length ?? 0}`],
          ["clients", "Clients"],
        ].map(([id, label]) => ({
          name: id,
          label,
          href: href(["agents", name, id], id === "card" ? query : {}),
          isCurrent: section === id,
        })),
        "Parts of the agent",
      ),
      section === "clients" ? clients(agent) : section === "skills" ? skills(agent) : cardView(),
    ];
  }

  function cardView() {
    const form = query.get("as") ?? "hybrid";
    return h(
      "div",
      { class: "card-view" },
      h(
        "div",
        { class: "toolbar" },
        h(
          "nav",
          { class: "segments", "aria-label": "Form" },
          FORMS.map((one) =>
            h(
              "a",
              { href: href(["agents", name, "card"], { as: one }), "data-form": one, "aria-current": form === one ? "page" : null },
              one === "hybrid" ? "as served" : one,
            ),
          ),
        ),
        button("Copy", { onclick: () => copyText(JSON.stringify(card?.data, null, 2), "card") }),
      ),
      card?.error
        ? errorBox(card.error, card.reload)
        : card?.data
          ? h("div", { class: "document", "data-document": "card", "data-form": form }, json(card.data, tree, { depth: 3 }))
          : loading(),
    );
  }

  /** @param {any} agent */
  function skills(agent) {
    if (!agent.skills?.length) return empty(h("p", null, "The card names no skills."));
    return h(
      "ul",
      { class: "skills" },
      agent.skills.map((/** @type {any} */ skill) =>
        h(
          "li",
          { class: "card" },
          h("h2", null, text(skill.name ?? skill.id)),
          skill.description ? text(skill.description, "p") : null,
          (skill.examples ?? []).map((/** @type {string} */ example) =>
            h("a", { class: "chip", href: href(["try"], { agent: agent.name, text: example }) }, text(example)),
          ),
        ),
      ),
    );
  }
}

/** @param {any[]} items */
export function agentTable(items) {
  if (!items.length)
    return empty(
      h("p", null, "No agents."),
      command("attache init agents.toml"),
      h("p", { class: "soft" }, "writes a starter file;"),
      command("attache serve agents.toml"),
      h("p", { class: "soft" }, "serves it."),
    );
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Agents" },
    h(
      "table",
      { class: "grid" },
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          ["name", "title", "health", "open", "all tasks", "versions", "skills"].map((one) => h("th", { scope: "col" }, one)),
        ),
      ),
      h(
        "tbody",
        null,
        items.map((agent) =>
          h(
            "tr",
            { key: agent.name, "data-agent": agent.name },
            h("td", { "data-label": "name" }, h("a", { href: href(["agents", agent.name]) }, text(agent.name))),
            h("td", { "data-label": "title" }, text(agent.title ?? "")),
            h("td", { "data-label": "health" }, healthLabel(agent)),
            h("td", { "data-label": "open" }, count(agent.tasks?.open)),
            h("td", { "data-label": "all tasks" }, h("a", { href: href(["tasks"], { agent: agent.name }) }, count(agent.tasks?.total))),
            h("td", { "data-label": "versions" }, (agent.versions ?? []).join(" ")),
            h("td", { "data-label": "skills" }, count(agent.skills?.length ?? 0)),
          ),
        ),
      ),
    ),
  );
}

/** @param {any} agent */
function clients(agent) {
  const url = String(agent.url).replace(/\/$/, "");
  const message = { messageId: "m-1", role: "ROLE_USER", parts: [{ text: "hello" }] };
  /** @type {[string, string][]} */
  const snippets = [
    ["attache", `attache send -a ${quote(agent.url)} hello`],
    ["curl, JSON-RPC 1.0", curl(url, "1.0", "SendMessage", { message })],
    [
      "curl, HTTP+JSON 1.0",
      `curl -sS ${quote(`${url}/message:send`)} -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' -H "Authorization: Bearer $A2A_TOKEN" -d ${quote(JSON.stringify({ message }))}`,
    ],
    ["Python (a2a-sdk)", python(url, "hello")],
    ["JavaScript (@a2a-js/sdk)", javascript(url, "hello")],
  ];
  return h(
    "div",
    { class: "snippets" },
    snippets.map(([label, code]) =>
      h(
        "section",
        null,
        h("header", null, h("h2", null, label), button("Copy", { "aria-label": `Copy ${label}`, onclick: () => copyText(code, label) })),
        h("pre", { class: "wrap", tabindex: "0" }, code),
      ),
    ),
  );
}
