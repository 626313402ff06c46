// Actions on tasks: cancel one or many, run again, export. Each dialog shows the equivalent command.
import { apiCommand, call, get, post, remove, seg } from "../api.js";
import { h } from "../h.js";
import { count, safeName, shortId, text, when } from "../format.js";
import { open, href } from "../route.js";
import { button, command, errorBox } from "../parts/common.js";
import { confirm, dialog, save, toast } from "../parts/dialog.js";

/** @param {TaskHead} task @param {(head: TaskHead) => void} then */
export async function cancelTask(task, then) {
  const body = [
    h("p", null, "The agent is asked to stop. What it has written so far stays."),
    command(apiCommand("POST", `/tasks/${task.id}/cancel`)),
  ];
  if (!(await confirm(`Cancel task ${shortId(task.id)}?`, body, "Cancel the task"))) return;
  try {
    then(await post(`/tasks/${seg(task.id)}/cancel`, { reason: "canceled in the console" }));
    toast("Cancellation requested");
  } catch (error) {
    toast(/** @type {any} */ (error).message, true);
  }
}

/** @param {TaskHead} task */
export async function runAgain(task) {
  const body = [
    h("p", null, "A new task starts with the same first message. Tools and other agents may act a second time: payments, mails, files."),
    command(apiCommand("POST", `/tasks/${task.id}/run-again`)),
  ];
  if (!(await confirm("Run again?", body, "Run again"))) return;
  try {
    const head = await post(`/tasks/${seg(task.id)}/run-again`, {});
    toast(`Started ${shortId(head.id)}`);
    open(href(["tasks", head.id]));
  } catch (error) {
    toast(/** @type {any} */ (error).message, true);
  }
}

/** Saves the export of each task. @param {string[]} ids */
export async function exportTasks(ids) {
  try {
    const parts = [];
    for (const id of ids) parts.push(await (await call("GET", `/tasks/${seg(id)}/export`, { headers: { Accept: "*/*" } })).text());
    const name = ids.length === 1 ? `task-${ids[0]}.jsonl` : `tasks-${ids.length}.jsonl`;
    save(safeName(name), new Blob(parts, { type: "application/jsonl" }));
  } catch (error) {
    toast(/** @type {any} */ (error).message, true);
  }
}

/**
 * Cancels many tasks: dry run, confirmation by typing the count, a job with one result per task.
 * @param {{ ids?: string[], filter?: Record<string, any> }} target
 * @param {number} expected
 */
export async function cancelDialog(target, expected) {
  const body = { action: "cancel", ...target, max: 10_000 };
  /** @type {any} */
  let plan;
  /** @type {any} */
  let job;
  /** @type {any} */
  let error;
  let typed = "";
  let isClosed = false;
  /** @type {() => void} */
  let redraw = () => {};
  const fail = (/** @type {any} */ failure) => {
    error = failure;
    redraw();
  };
  post("/tasks/actions", body, { query: { dryRun: true } }).then((result) => ((plan = result), redraw()), fail);
  const poll = async (/** @type {string} */ id) => {
    while (!isClosed) {
      job = await get(`/jobs/${seg(id)}`);
      redraw();
      if (job.state !== "running") return;
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
  };
  const run = async () => {
    try {
      const started = await post("/tasks/actions", body);
      await poll(started.id);
    } catch (failure) {
      fail(failure);
    }
  };
  await dialog(
    `Cancel ${count(expected)} tasks`,
    (close, draw) => {
      redraw = draw;
      if (error) return errorBox(error);
      if (job) return progress(job, () => close());
      if (!plan) return h("p", { role: "status" }, "Counting…");
      const number = plan.tasks;
      return h(
        "form",
        { class: "stack", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), typed === String(number) && run()) },
        h("p", { "data-dry-run": number }, h("strong", null, `${count(number)} open tasks`), " will be canceled."),
        plan.tasks > plan.max ? h("p", { class: "note" }, `One job cancels at most ${count(plan.max)}.`) : null,
        plan.oldest ? h("p", { class: "soft" }, "Oldest ", when(plan.oldest), " · newest ", when(plan.newest)) : null,
        command(apiCommand("POST", "/tasks/actions", body)),
        h(
          "label",
          null,
          `Type ${number} to confirm`,
          h("input", {
            name: "confirm",
            inputmode: "numeric",
            autocomplete: "off",
            value: typed,
            oninput: (/** @type {any} */ e) => ((typed = e.target.value.trim()), draw()),
          }),
        ),
        h(
          "div",
          { class: "buttons" },
          button("Keep them", { onclick: () => close() }),
          h(
            "button",
            { class: "primary danger", disabled: typed !== String(number) || number === 0, "data-action": "confirm" },
            `Cancel ${count(number)} tasks`,
          ),
        ),
      );
    },
    { name: "bulk" },
  );
  isClosed = true;
}

/** @param {any} job @param {() => void} close */
function progress(job, close) {
  const isDone = job.state !== "running";
  const others = (job.results ?? []).filter((/** @type {any} */ result) => result.outcome !== "done");
  return h(
    "div",
    { class: "stack", "data-job": isDone ? "done" : "running" },
    h("progress", { max: String(job.total || 1), value: String(job.done + job.failed + job.skipped), "aria-label": "Progress" }),
    h("p", { role: "status" }, `${count(job.done)} canceled · ${count(job.skipped)} ended before · ${count(job.failed)} failed`),
    others.length
      ? h(
          "ul",
          { class: "results" },
          others
            .slice(0, 200)
            .map((/** @type {any} */ result) =>
              h(
                "li",
                null,
                h("a", { href: href(["tasks", result.task]) }, shortId(result.task)),
                ` ${result.outcome} `,
                text(result.detail),
              ),
            ),
        )
      : null,
    h(
      "div",
      { class: "buttons" },
      isDone
        ? button("Close", { class: "primary", "data-action": "close", onclick: close })
        : button("Stop", { onclick: () => remove(`/jobs/${seg(job.id)}`).catch(() => null) }),
    ),
  );
}
