// Takes a picture of every screen × light, dark × 1280, 390 px: screenshots.mjs FOLDER. They are looked at by people: fonts differ too
// much between machines for a comparison.
import { mkdirSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { context, go, open } from "./harness.mjs";
import { startStandIn } from "./stand_in.mjs";

const folder = process.argv[2] ?? "target/console-screenshots";

test("screenshots", async () => {
  mkdirSync(folder, { recursive: true });
  const server = await startStandIn({ tasks: 300 });
  const empty = await startStandIn({ tasks: 0 });
  const failed = `#/tasks/${server.state.tasks[1].id}`;
  const parked = `#/tasks/${server.state.tasks[3].id}`;
  const screens = {
    overview: "#/",
    tasks: "#/tasks",
    "task-lanes": `${failed}?view=lanes`,
    "task-parked": `${parked}?view=lanes&seq=12`,
    "task-list": `${failed}?view=list&seq=14&wire=0.3`,
    "task-flame": `${failed}?view=flame`,
    "task-history": `${failed}?view=history`,
    "task-artifacts": `${failed}?view=artifacts`,
    "task-state": `${failed}?view=lanes&at=14&seq=14`,
    inbox: "#/inbox",
    webhook: "#/webhooks/3",
    agents: "#/agents",
    "agent-card": "#/agents/clerk",
    "agent-clients": "#/agents/clerk/clients",
    try: "#/try",
    server: "#/server",
    audit: "#/server/audit",
    find: "#/find/poem",
  };
  for (const [width, height] of [
    [1280, 800],
    [390, 780],
  ]) {
    for (const colorScheme of ["light", "dark"]) {
      const options = { viewport: { width, height }, colorScheme };
      const picture = (page, name) => page.screenshot({ path: path.join(folder, `${name}-${width}-${colorScheme}.png`) });
      const login = await (await context(options)).newPage();
      await login.goto(`${server.admin}/console/`);
      await login.waitForSelector("#key");
      await picture(login, "login");
      const page = await open(server, "#/", options);
      for (const [name, route] of Object.entries(screens)) {
        await go(page, route);
        await picture(page, name);
      }
      const bare = await open(empty, "#/", options);
      for (const [name, route] of Object.entries({ tasks: "#/tasks", inbox: "#/inbox", webhooks: "#/webhooks", try: "#/try" })) {
        await go(bare, route);
        await picture(bare, `empty-${name}`);
      }
      server.state.fault = {
        status: 503,
        body: {
          error: {
            code: "unavailable",
            message: "the store does not respond",
            hint: "Check the disk of the server.",
            errorId: "7f3a90412",
          },
        },
      };
      for (const name of ["inbox", "webhooks", "agents"]) {
        await page.evaluate((hash) => (location.hash = hash), `#/${name}`);
        await page.waitForSelector("[data-error]");
        await picture(page, `error-${name}`);
      }
      server.state.fault = null;
    }
  }
});
