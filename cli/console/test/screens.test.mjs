// Screens of the console in Chromium, on a stand-in of the API: size, live updates, keyboard, contrast, roles, faults, hostile content.
import assert from "node:assert/strict";
import { test } from "node:test";
import { axeSource, context, go, listen, open, ready } from "./harness.mjs";
import { startStandIn } from "./stand_in.mjs";

const MANY = 10_000;
const failedTask = (server) => server.state.tasks.find((task) => task.state.endsWith("FAILED"));
const SCREENS = (server) => [
  "#/",
  "#/tasks",
  "#/inbox",
  "#/agents",
  "#/agents/clerk",
  "#/agents/clerk/clients",
  "#/webhooks",
  "#/webhooks/3",
  "#/try",
  "#/server",
  "#/server/audit",
  "#/find/poem",
  ...["lanes", "list", "flame", "history", "artifacts", "webhooks", "raw"].map((view) => `#/tasks/${failedTask(server).id}?view=${view}`),
];

test("C4 a change of a task appears in place; new tasks wait behind a chip", async () => {
  const server = await startStandIn();
  const page = await open(server, "#/tasks");
  await page.waitForSelector(".l-live");
  const task = server.state.tasks[2];
  server.emit("tasks", {
    changes: [{ id: task.id, state: "TASK_STATE_COMPLETED", position: 40, updated: new Date().toISOString(), agent: "demo" }],
    new: 0,
  });
  await page.waitForSelector(`[data-task="${task.id}"] .state:has-text("completed")`);
  const first = await page.locator(".list [data-task]").first().getAttribute("data-task");
  const fresh = { ...task, id: "01a1e8fd-c12f-7c40-9d2e-5b0c21ffffff", title: "new one" };
  server.state.tasks.unshift(fresh);
  server.emit("tasks", {
    changes: [{ id: fresh.id, state: fresh.state, position: 1, updated: fresh.updated, agent: "demo", opened: true }],
    new: 1,
  });
  await page.getByText("1 new").waitFor();
  assert.equal(await page.locator(".list [data-task]").first().getAttribute("data-task"), first, "new rows do not move the list");
  await page.keyboard.press("n");
  await page.waitForSelector(`[data-task="${fresh.id}"]`);
});

test("C5 entries that arrive twice appear once; a resync reads the task again", async () => {
  const server = await startStandIn();
  const task = server.state.tasks[2];
  const page = await open(server, `#/tasks/${task.id}?view=list&seq=31`);
  await page.waitForSelector(`.entry-list [data-seq="31"]`);
  await page.waitForSelector(".l-live");
  task.entries = 34;
  const entries = [30, 31, 32, 33, 34].map((seq) => ({
    seq,
    time: new Date().toISOString(),
    kind: "status",
    summary: `live ${seq}`,
    body: {},
  }));
  server.emit("entries", { task: task.id, entries });
  server.emit("entries", { task: task.id, entries });
  await page.waitForSelector(`.entry-list [data-seq="34"]`);
  const rows = await page.locator(".entry-list [data-seq]").evaluateAll((all) => all.map((row) => Number(row.dataset.seq)));
  assert.deepEqual(rows, [...new Set(rows)]);
  task.entries = 36;
  server.emit("resync", { reason: "behind" });
  await page.waitForSelector('main[data-rows="36"]');
});

test(`C6 ${MANY} tasks: bounded elements, scroll to the end, back to the same row`, async () => {
  const server = await startStandIn({ tasks: MANY });
  const page = await open(server, "#/tasks");
  await page.waitForSelector(`main[data-rows="${MANY}"] .list [data-task]`);
  const nodes = () => page.evaluate(() => document.querySelectorAll("*").length);
  assert.ok((await nodes()) <= 1500, `${await nodes()} elements`);
  await page.locator(".list .rows").evaluate((rows) => rows.scrollTo(0, rows.scrollHeight));
  await page.waitForSelector(`[aria-rowindex="${MANY + 1}"][data-task]`);
  assert.ok((await nodes()) <= 1500, `${await nodes()} elements at the end`);
  const wanted = server.state.tasks[MANY - 10].id;
  await page.locator(`[data-task="${wanted}"] a.title`).click();
  await ready(page, "task");
  await page.goBack();
  await page.waitForSelector(`[data-task="${wanted}"]`);
  await page.click("[data-group=failed]");
  await page.waitForSelector(`main[data-rows="2222"]`);
});

test("C6 seven tabs share one stream; the next tab takes over", async () => {
  const server = await startStandIn();
  const profile = await context();
  const first = await open(server, "#/tasks", { profile });
  await first.waitForSelector(".l-live");
  const tabs = [];
  for (let n = 0; n < 6; n += 1) {
    const tab = await profile.newPage();
    await tab.goto(`${server.admin}/console/#/tasks`);
    await ready(tab, "tasks");
    tabs.push(tab);
  }
  server.emit("tasks", { changes: [], new: 3 });
  await Promise.all(tabs.map((tab) => tab.getByText("3 new").waitFor()));
  assert.equal(server.state.streams.size, 1);
  const takeover = server.nextStream();
  await first.close();
  await takeover;
  server.emit("tasks", { changes: [], new: 2 });
  await Promise.all(tabs.map((tab) => tab.getByText("5 new").waitFor()));
});

test("C10 approve and deny carry the position; a late answer shows the earlier one", async () => {
  const server = await startStandIn();
  const profile = await context();
  const page = await open(server, "#/inbox", { profile });
  const late = await open(server, "#/inbox", { profile });
  await page.fill("[name=reason]", "as agreed");
  await page.click("[data-action=approve]");
  await page.waitForSelector('main[data-rows="2"]');
  const call = server.state.calls.find((one) => one.path.startsWith("/inbox/"));
  assert.deepEqual(call.body, { approved: true, reason: "as agreed" });
  assert.equal(call.headers["if-match"], '"31"');
  await late.click("[data-action=deny]");
  await late.waitForSelector("[data-late]");
  assert.match(await late.locator("[data-late]").innerText(), /key:bob/);
});

test("C13 many tasks are canceled after a dry run and the typed count", async () => {
  const server = await startStandIn();
  const page = await open(server, "#/tasks?state=working");
  await page.click("[data-action=cancel-all]");
  await page.waitForSelector('[data-dry-run="9"]');
  const confirm = page.locator("dialog [data-action=confirm]");
  assert.equal(await confirm.isDisabled(), true);
  await page.fill("dialog input[name=confirm]", "9");
  await confirm.click();
  await page.waitForSelector("[data-job=done]");
  assert.match(await page.locator("[data-job]").innerText(), /8 canceled · 1 ended before · 0 failed/);
  const { body } = server.state.calls.at(-1);
  assert.deepEqual(body.filter, { state: ["working"] });
});

test("C14 a failed webhook shows its dead letters and is retried", async () => {
  const server = await startStandIn();
  const page = await open(server, "#/webhooks/3");
  await page.waitForSelector("[data-letter]");
  assert.equal(await page.locator("[data-letter]").count(), 5);
  await page.click("[data-webhook-detail] [data-action=retry]");
  await page.waitForSelector('[data-webhook-detail] .state:has-text("done")');
  assert.equal(await page.locator("[data-letter]").count(), 0);
});

test("C15 Try it sends custom headers, folds the chunks and copies curl", async () => {
  const server = await startStandIn();
  const page = await open(server, "#/try", { permissions: ["clipboard-read", "clipboard-write"] });
  await page.click(".more summary");
  await page.getByLabel("Name of header 1").fill("X-Trace");
  await page.getByLabel("Value of header 1").fill("42");
  await page.getByLabel("Message", { exact: true }).fill("hello");
  await page.click("[data-action=send]");
  await page.waitForSelector('[data-turn="0"][data-end=true]');
  assert.equal(await page.locator('[data-artifact="a"]').innerText(), "Hello");
  assert.deepEqual(server.state.calls.at(-1).body.headers, { "X-Trace": "42" });
  await page.click("[data-action=copy-curl]");
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(copied, /^curl -sSN 'http:\/\/127\.0\.0\.1:41241\/agents\/clerk\/'.*X-Trace: 42/s);
  assert.ok(copied.includes("$A2A_TOKEN") && !copied.includes("••••"));
});

test("C17 hostile content neither runs nor loads nor breaks the page (S47, S54, S56)", async () => {
  const hits = [];
  const trap = await listen((request, response) => {
    hits.push(request.url);
    response.end();
  });
  const server = await startStandIn();
  const task = failedTask(server);
  task.title = `<img src=x onerror="document.title='run'">\u202Egnp.exe`;
  task.parts = [
    { text: `<script>document.title = "run"</script><img src="${trap}/img" onerror="document.title='run'">` },
    {
      text: `![x](${trap}/md.png) [link](javascript:document.title='run') <iframe src="${trap}/frame"></iframe>`,
      mediaType: "text/markdown",
    },
    {
      text: `<svg xmlns="http://www.w3.org/2000/svg" onload="document.title='run'"><image href="${trap}/svg"/></svg>`,
      mediaType: "image/svg+xml",
    },
    { text: "x".repeat(5_000_000) },
    { url: `${trap}/file`, filename: "remote.png", mediaType: "image/png" },
    { filename: "../../../etc/passwd.html", mediaType: "text/html", metadata: { "attache.omitted": { bytes: 18 } } },
  ];
  const page = await open(server, `#/tasks/${task.id}?view=artifacts`);
  await page.getByText("Show more").waitFor();
  assert.ok((await page.locator(".mark").allInnerTexts()).includes("⟪U+202E⟫"));
  assert.ok((await page.evaluate(() => document.querySelector("main").textContent.length)) < 100_000, "5 MB are folded");
  const [file] = await Promise.all([page.waitForEvent("download"), page.locator("[data-action=download]").last().click()]);
  assert.equal(file.suggestedFilename(), "passwd.html");
  for (const view of ["history", "raw", "list", "lanes", "flame"]) await go(page, `#/tasks/${task.id}?view=${view}`);
  await go(page, "#/tasks");
  assert.doesNotMatch(await page.title(), /^run/);
  assert.equal(await page.locator("main iframe, main script, main img").count(), 0);
  assert.deepEqual(hits, []);
});

test("C19 a viewer sees no action, an approver only the inbox (S14)", async () => {
  const viewer = await startStandIn({ role: "viewer" });
  const page = await open(viewer, `#/tasks/${viewer.state.tasks[2].id}`);
  for (const action of ["cancel", "run-again", "answer"]) assert.equal(await page.locator(`[data-action=${action}]`).count(), 0, action);
  assert.equal(await page.locator("[data-nav=try]").count(), 0);
  await go(page, "#/inbox");
  assert.equal(await page.locator("[data-action=approve]").count(), 0);

  const approver = await startStandIn({ role: "approver" });
  const own = await (await context()).newPage();
  await own.goto(await approver.link());
  await ready(own, "inbox");
  assert.deepEqual(await own.locator("nav.side a").evaluateAll((all) => all.map((one) => one.dataset.nav)), ["inbox"]);
  assert.equal(await own.locator("[data-action=approve]").count(), 1);
});

test("C23 keyboard only: find a failed task, read the cause, copy its command, answer an item", async () => {
  const server = await startStandIn();
  const page = await open(server, "#/", { permissions: ["clipboard-read", "clipboard-write"] });
  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await ready(page, "tasks");
  await page.waitForSelector(".row.active");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await ready(page, "task");
  assert.match(await page.locator("[data-outcome]").innerText(), /insufficient funds/);
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "H1", "focus is at the heading of the new screen");
  await page.keyboard.press("]");
  await page.keyboard.press("v");
  await page.waitForSelector("[data-wire='1.0'][aria-pressed=true]");
  await page.keyboard.press("c");
  await page.waitForSelector("dialog[data-dialog=copy]");
  await page.getByRole("button", { name: "attache: repeat this call" }).focus();
  await page.keyboard.press("Enter");
  await page.getByText("Copied: attache: repeat this call").waitFor();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^attache send -a /);
  await page.keyboard.press("g");
  await page.keyboard.press("i");
  await ready(page, "inbox");
  await page.keyboard.press("d");
  await page.waitForSelector('main[data-rows="2"]');
  assert.equal(server.state.calls.at(-1).body.approved, false);
  assert.notEqual(await page.evaluate(() => document.activeElement), null);
});

for (const colorScheme of ["light", "dark"]) {
  test(`C24 axe finds no violation on any screen, ${colorScheme}`, async () => {
    const server = await startStandIn();
    const page = await open(server, "#/", { colorScheme, bypassCSP: true });
    await page.addScriptTag({ path: axeSource });
    const found = [];
    for (const route of SCREENS(server)) {
      await go(page, route);
      const { violations } = await page.evaluate(() =>
        globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }),
      );
      for (const violation of violations)
        found.push(
          `${route} ${violation.id}: ${violation.nodes
            .slice(0, 3)
            .map((node) => node.target.join(" "))
            .join(", ")}`,
        );
    }
    assert.deepEqual(found, []);
  });
}

test("C24 390 px and 400 % zoom: nothing scrolls sideways", async () => {
  const server = await startStandIn();
  for (const viewport of [
    { width: 390, height: 780 },
    { width: 320, height: 256 },
  ]) {
    const page = await open(server, "#/", { viewport });
    for (const route of SCREENS(server)) {
      await go(page, route);
      const wide = await page.evaluate(() => {
        const main = document.querySelector("main");
        return document.documentElement.scrollWidth > innerWidth || main.scrollWidth > main.clientWidth + 1;
      });
      assert.equal(wide, false, `${route} at ${viewport.width} px`);
    }
  }
});

test("C25 429, 503 and a server that is gone: the screen shows the error and recovers", async () => {
  const server = await startStandIn();
  const page = await open(server);
  for (const [status, code] of [
    [429, "too_many"],
    [503, "unavailable"],
    [500, "internal"],
  ]) {
    for (const route of ["#/tasks?state=failed", "#/inbox", "#/webhooks", "#/agents", "#/server", `#/tasks/${server.state.tasks[1].id}`]) {
      server.state.fault = { status, body: { error: { code, message: `planted ${status}`, hint: "try later", errorId: "e-42" } } };
      await page.evaluate((hash) => (location.hash = hash), route);
      await page.waitForSelector(`[data-error="${code}"]`);
      assert.match(await page.locator(`[data-error="${code}"]`).first().innerText(), /planted.*try later.*e-42/s, route);
      server.state.fault = null;
      await page.locator("[data-action=retry]").first().click();
      await page.waitForSelector('main[data-state="ready"]');
      await page.waitForSelector("[data-error]", { state: "detached" });
      await go(page, "#/find/nothing");
    }
  }
});

test("C2 a session that ends leads to sign-in and back to the same route", async () => {
  const server = await startStandIn();
  const page = await open(server, "#/webhooks?state=retrying");
  await page.waitForSelector(".l-live");
  server.state.isSignedIn = false;
  server.emit("webhooks", { failed: 2 });
  await ready(page, "login");
  await page.getByText("Your session ended").waitFor();
  await page.fill("#key", "caller");
  await page.click("[data-action=sign-in]");
  await page.waitForSelector("[data-error=invalid_key]");
  await page.fill("#key", "operator");
  await page.click("[data-action=sign-in]");
  await ready(page, "webhooks");
  assert.match(page.url(), /#\/webhooks\?state=retrying$/);
});

test("a screen whose part of the API is missing is not offered", async () => {
  const server = await startStandIn({ features: [] });
  const page = await open(server, "#/");
  assert.deepEqual(await page.locator("nav.side a").evaluateAll((all) => all.map((one) => one.dataset.nav)), ["overview", "server"]);
  await page.evaluate(() => (location.hash = "#/tasks"));
  await ready(page, "overview");
  await page.waitForSelector(".l-polling");
});

test("every screen of a new server names what is missing and one command", async () => {
  const server = await startStandIn({ tasks: 0 });
  const page = await open(server);
  for (const route of ["#/tasks", "#/inbox", "#/webhooks"]) {
    await go(page, route);
    await page.waitForSelector(".empty .command");
  }
});
