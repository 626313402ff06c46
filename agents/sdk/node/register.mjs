import { register } from "node:module";
import { writeSync } from "node:fs";
const sdk = process.env.ATTACHE_WORKER_SDK;
delete process.env.ATTACHE_WORKER_SDK;
const refuse = (error) => {
  writeSync(1, JSON.stringify({ hello: { protocol: 1, error } }) + "\n");
  process.exit(1);
};
const [major, minor] = process.versions.node.split(".").map(Number);
const file = process.argv[1] ?? "";
if (/\.m?ts$/.test(file) && (major < 22 || (major === 22 && minor < 18))) {
  refuse(`TypeScript needs Node 22.18 or newer, and this is ${process.versions.node}; install it, name it as interpreter, or serve a .mjs file`);
}
const url = "data:text/javascript;base64," + Buffer.from(sdk).toString("base64");
const hooks = `export async function resolve(name, context, next) {
  return name === "@attache/agent" ? { url: ${JSON.stringify(url)}, shortCircuit: true } : next(name, context);
}`;
register("data:text/javascript;base64," + Buffer.from(hooks).toString("base64"));
