// A running `attache serve` with the demo agent, for the flows that need the real program.
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { atEnd, consoleFolder } from "./harness.mjs";

const program = path.join(process.env.ATTACHE_PROGRAMS ?? path.join(consoleFolder, "../../target/debug"), "attache");
const run = promisify(execFile);

export class Server {
  /** Starts a server on free ports, with an empty data directory. It ends with the file. */
  static async start() {
    const server = new Server();
    server.folder = mkdtempSync(path.join(tmpdir(), "console-"));
    atEnd(() => rmSync(server.folder, { recursive: true, force: true }));
    server.dataDir = path.join(server.folder, "data");
    const { PATH, CONSOLE_DIR } = process.env;
    server.environment = { PATH, HOME: server.folder, ...(CONSOLE_DIR ? { CONSOLE_DIR } : {}) };
    writeFileSync(path.join(server.folder, "agents.toml"), '[agents.demo]\ntype = "demo"\n');
    server.root = await server.key("tests");
    server.caller = (await server.attache("keys", "add", "ci")).split(/\s+/).at(-1);
    const args = ["serve", "agents.toml", "--data-dir", server.dataDir, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    const child = spawn(program, args, { cwd: server.folder, env: server.environment });
    const ended = new Promise((resolve) => child.once("exit", resolve));
    atEnd(() => {
      child.kill();
      return ended;
    });
    await new Promise((resolve, reject) => {
      let output = "";
      const read = (chunk) => {
        output += chunk;
        if (output.includes("Listening on ")) resolve();
      };
      child.stdout.on("data", read);
      child.stderr.on("data", read);
      ended.then((code) => reject(new Error(`attache ended with ${code}: ${output}`)));
    });
    server.admin = new URL(await server.link()).origin;
    return server;
  }

  /** Runs the program and returns its output. */
  async attache(...args) {
    const { stdout } = await run(program, [...args, "--data-dir", this.dataDir], { cwd: this.folder, env: this.environment });
    return stdout.trim();
  }

  /** A new one-time link. */
  link() {
    return this.attache("console", "--no-open");
  }

  /** A new operator key. */
  async key(name) {
    return (await this.attache("keys", "add", name, "--admin")).split(/\s+/).at(-1);
  }

  /** A page of the admin API, read with an operator key. */
  async read(route) {
    return (await fetch(`${this.admin}/api/v1${route}`, { headers: { Authorization: `Bearer ${this.root}` } })).json();
  }
}
