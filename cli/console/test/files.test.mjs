// Budgets and rules of the files themselves.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { consoleFolder } from "./harness.mjs";

const names = readdirSync(consoleFolder, { recursive: true })
  .map(String)
  .filter((name) => /\.(js|css|html|svg)$/.test(name) && !/^(test|node_modules)\//.test(name));
const read = (name) => readFileSync(path.join(consoleFolder, name));

test("the files keep their budget: 300 kB, 90 kB compressed, 60 modules", () => {
  const all = Buffer.concat(names.map(read));
  const modules = names.filter((name) => name.endsWith(".js"));
  assert.ok(all.length <= 300_000, `${all.length} bytes`);
  assert.ok(gzipSync(all, { level: 9 }).length <= 90_000, `${gzipSync(all).length} bytes compressed`);
  assert.ok(modules.length <= 60, `${modules.length} modules`);
});

test("the page preloads every module", () => {
  const page = read("index.html").toString();
  const listed = [...page.matchAll(/(?:modulepreload" href|module" src)="([^"]+)"/g)].map((match) => match[1]);
  assert.deepEqual(listed.sort(), names.filter((name) => name.endsWith(".js")).sort());
});

test("no module parses markup, evaluates text or writes a style attribute (S54)", () => {
  const forbidden = /innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|setAttribute\("style"|DOMParser|srcdoc/;
  for (const name of names.filter((one) => one.endsWith(".js"))) assert.doesNotMatch(read(name).toString(), forbidden, name);
});
