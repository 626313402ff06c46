// Servers, browsers and waits for the flows. A wait is for a state of the page, a row or a line of output; nothing sleeps.
import assert from "node:assert/strict";
import http from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { after, afterEach } from "node:test";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
export const consoleFolder = path.dirname(here);
const repository = path.join(here, "../../..");
const require = createRequire(path.join(process.env.CONSOLE_PACKAGES ?? path.join(repository, "target/peers/console"), "package.json"));
const { chromium } = require("playwright-core");
export const axeSource = require.resolve("axe-core/axe.min.js");
const WAIT_MS = 20_000;

/** Runs at the end of the file, last first. @type {(() => unknown)[]} */
const cleanups = [];
after(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});
export const atEnd = (cleanup) => cleanups.push(cleanup);

/** Starts an HTTP server on a free port; it ends with the file. @returns {Promise<string>} its address */
export function listen(handle) {
  const server = http.createServer(handle);
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${server.address().port}`)));
}

/** Reads a request body. @param {http.IncomingMessage} request */
export async function bodyOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

let shared;
/** The browser of this file. */
export async function browser() {
  if (!shared) {
    shared = await chromium.launch({
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
    });
    atEnd(() => shared.close());
  }
  return shared;
}

/** Problems of all pages of the running test. @type {string[]} */
let problems = [];
afterEach(() => {
  const found = problems;
  problems = [];
  assert.deepEqual(found, [], "console errors, CSP violations, exceptions or requests to other origins");
});

/** Records what no page may do. A refused request is a state of the page, which the test checks itself. */
export function watch(page, origin) {
  page.setDefaultTimeout(WAIT_MS);
  page.on("console", (message) => {
    if (message.type() === "error" && !/Failed to load resource/.test(message.text())) problems.push(message.text());
  });
  page.on("pageerror", (error) => problems.push(String(error.stack ?? error)));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (!["blob:", "data:"].includes(url.protocol) && url.origin !== origin) problems.push(`request to ${url.origin}`);
  });
}

/** A new browser profile. */
export async function context(options = {}) {
  const one = await (await browser()).newContext({ viewport: { width: 1280, height: 800 }, ...options });
  atEnd(() => one.close().catch(() => {}));
  return one;
}

/** Signs in with a one-time link and opens a route. */
export async function open(server, route = "#/", { profile, ...options } = {}) {
  const own = profile ?? (await context(options));
  const page = await own.newPage();
  watch(page, server.admin);
  await page.goto(await server.link());
  await ready(page, "overview");
  if (route !== "#/") await go(page, route);
  return page;
}

/** Opens a route in the same page. */
export async function go(page, route) {
  await page.evaluate((hash) => (location.hash = hash), route);
  const [name, id] = route.replace(/^#\//, "").split(/[/?]/);
  await ready(page, name === "tasks" && id && route.startsWith("#/tasks/") ? "task" : name || "overview");
}

/** Waits until a screen is complete. */
export const ready = (page, screen) => page.waitForSelector(`main[data-screen="${screen}"][data-state="ready"]`);
