// Sign-in and sessions with the real program (S14, S78, S79, S80).
import assert from "node:assert/strict";
import http from "node:http";
import { before, test } from "node:test";
import { axeSource, bodyOf, context, go, listen, open, ready, watch } from "./harness.mjs";
import { Server } from "./server.mjs";

let server;
before(async () => (server = await Server.start()));

test("C1 the printed link opens the overview, once, and leaves the address bar (S80)", async () => {
  const link = await server.link();
  const token = link.split("/login/")[1];
  const page = await (await context()).newPage();
  watch(page, server.admin);
  const requests = [];
  page.on("request", (request) => requests.push(`${request.url()} ${request.headers().referer ?? ""}`));
  await page.goto(link);
  await ready(page, "overview");
  assert.equal(await page.evaluate(() => location.href.includes("login")), false);
  assert.equal((await page.evaluate(() => document.documentElement.innerHTML)).includes(token), false);
  assert.ok(
    requests.slice(1).every((line) => !line.includes(token)),
    "no request carries the token in its address",
  );

  const second = await (await context()).newPage();
  watch(second, server.admin);
  await second.goto(link);
  await ready(second, "login");
  await second.getByText("This link was used or is older than 60 s").waitFor();
  assert.equal(second.url().includes(token), false);
});

test("C2 a caller key is refused; an operator key signs in; a revoked key leads to sign-in and back (S14)", async () => {
  const page = await (await context()).newPage();
  watch(page, server.admin);
  await page.goto(`${server.admin}/console/#/server/about`);
  await ready(page, "login");
  await page.fill("#key", server.caller);
  await page.click("[data-action=sign-in]");
  await page.waitForSelector("[data-error=invalid_key]");
  assert.equal(await page.locator("nav.side").count(), 0);

  await page.fill("#key", await server.key("ann"));
  await page.click("[data-action=sign-in]");
  await ready(page, "server");
  assert.match(page.url(), /#\/server\/about$/);

  await server.attache("keys", "revoke", "ann");
  await page.click("[data-tab=audit]");
  await ready(page, "login");
  await page.getByText("Your session ended").waitFor();
  await page.fill("#key", await server.key("bea"));
  await page.click("[data-action=sign-in]");
  await ready(page, "server");
  assert.match(page.url(), /#\/server\/audit$/);
});

test("C3 a page on another port that has the cookie changes and reads nothing (S78, S79)", async () => {
  const profile = await context();
  await open(server, "#/", { profile });
  const before = await server.read("/audit?action=server.reload");
  const attacker = await listen(async (request, response) => {
    await bodyOf(request);
    response.writeHead(200, { "Content-Type": "text/html" });
    response.end(
      `<form method=post enctype="text/plain" action="${server.admin}/api/v1/server/reload"><input name='{"a":"' value='"}'></form>`,
    );
  });
  const page = await profile.newPage();
  const statuses = [];
  page.on("response", (response) => response.url().startsWith(server.admin) && statuses.push(response.status()));
  await page.goto(attacker);
  const read = await page.evaluate(async (api) => {
    const attempt = (options) =>
      fetch(`${api}/session`, { credentials: "include", ...options }).then(
        (r) => `status ${r.status}`,
        () => "blocked",
      );
    return [
      await attempt({}),
      await attempt({ mode: "no-cors" }),
      await attempt({ method: "POST", mode: "no-cors", headers: { "Content-Type": "text/plain" }, body: "{}" }),
    ];
  }, `${server.admin}/api/v1`);
  assert.equal(read[0], "blocked");
  await Promise.all([
    page.waitForResponse((response) => response.url().includes("/server/reload")),
    page.evaluate(() => document.forms[0].submit()),
  ]);
  assert.ok(statuses.length > 0 && statuses.every((status) => status === 403), `statuses ${statuses}`);
  const [cookie] = await profile.cookies(server.admin + "/api/v1/");
  const status = (headers) =>
    new Promise((resolve) =>
      http.get(`${server.admin}/api/v1/session`, { headers: { Cookie: `${cookie.name}=${cookie.value}`, ...headers } }, (reply) =>
        resolve(reply.resume().statusCode),
      ),
    );
  assert.equal(await status({ Origin: attacker }), 403);
  assert.equal(await status({ "Sec-Fetch-Site": "cross-site" }), 403);
  assert.equal(await status({ Host: "evil.example" }), 403);
  assert.equal(await status({}), 401, "the cookie alone is no session");
  const after = await server.read("/audit?action=server.reload");
  assert.equal(
    after.items.filter((record) => record.outcome === "ok").length,
    before.items.filter((record) => record.outcome === "ok").length,
  );
});

test("the program serves every file of the console, and its screens pass axe", async () => {
  const page = await open(server, "#/", { bypassCSP: true });
  await page.addScriptTag({ path: axeSource });
  for (const route of ["#/", "#/server", "#/server/audit", "#/server/about"]) {
    await go(page, route);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag22aa"] }));
    assert.deepEqual(
      violations.map((violation) => violation.id),
      [],
      route,
    );
  }
});
