// Search: opens the object with this id, or lists what matches and where the console looked.
import { get, seg } from "../api.js";
import { h } from "../h.js";
import { count, stateLabel, text, titleOf, when } from "../format.js";
import { href } from "../route.js";
import { rerender, resource } from "../store.js";
import { button, empty, errorBox, loading } from "../parts/common.js";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** @param {Route} route @returns {ScreenView} */
export function find(route) {
  let words = route.path.join("/");
  let result = search();

  function search() {
    return resource(async (signal) => {
      const agents = (await get("/agents", { limit: 500 }, signal)).items.filter((/** @type {any} */ agent) =>
        agent.name.toLowerCase().includes(words.toLowerCase()),
      );
      if (UUID.test(words)) {
        const task = await get(`/tasks/${seg(words)}`, {}, signal).catch(() => null);
        if (task) {
          location.replace(href(["tasks", task.head.id]));
          return null;
        }
        const context = await get("/tasks", { context: words, limit: 50 }, signal);
        return { agents, tasks: context.items, places: ["task ids", "conversations"] };
      }
      const isPrefix = /^[0-9a-f-]{8,}$/i.test(words);
      const isShort = /^(…|\.\.\.)?[0-9a-f]{4,}$/i.test(words) && !isPrefix;
      if (/^#?\d{1,9}$/.test(words) && !isShort) {
        const hook = await get(`/webhooks/${words.replace("#", "")}`, {}, signal).catch(() => null);
        if (hook) return { agents, tasks: [], hook, places: ["webhook numbers"] };
      }
      const tasks = await get(
        "/tasks",
        isPrefix ? { id: words } : isShort ? { id: `…${words.replace(/^(…|\.\.\.)/, "")}` } : { text: words, limit: 50 },
        signal,
      );
      if (tasks.items.length === 1 && (isPrefix || isShort)) {
        location.replace(href(["tasks", tasks.items[0].id]));
        return null;
      }
      return {
        agents,
        tasks: tasks.items,
        searched: tasks.searched,
        next: tasks.next,
        places: [isPrefix ? "beginnings of task ids" : isShort ? "ends of task ids" : "words in messages", "names of agents"],
      };
    });
  }

  async function more() {
    const data = /** @type {any} */ (result.data);
    const next = await get("/tasks", { text: words, limit: 50, after: data.next }).catch((error) => ((result.error = error), null));
    if (next)
      Object.assign(data, {
        tasks: [...data.tasks, ...next.items],
        next: next.next,
        searched: { tasks: (data.searched?.tasks ?? 0) + (next.searched?.tasks ?? 0), complete: next.searched?.complete ?? true },
      });
    rerender();
  }

  return {
    title: `Find ${words}`,
    state: () => result.state,
    rows: () => result.data?.tasks.length,
    route(next) {
      words = next.path.join("/");
      this.title = `Find ${words}`;
      result.close();
      result = search();
      return true;
    },
    close: () => result.close(),
    view() {
      const data = /** @type {any} */ (result.data);
      return [
        h("h1", { tabindex: "-1" }, "Find ", text(words, "code")),
        result.error ? errorBox(result.error, result.reload) : null,
        !data
          ? result.error
            ? null
            : loading("Searching…")
          : [
              data.agents.map((/** @type {any} */ agent) =>
                h("p", null, "Agent ", h("a", { href: href(["agents", agent.name]) }, text(agent.name))),
              ),
              data.hook
                ? h(
                    "p",
                    null,
                    "Webhook ",
                    h("a", { href: href(["webhooks", data.hook.number]) }, `#${data.hook.number} `, text(data.hook.origin)),
                  )
                : null,
              data.tasks.length
                ? h(
                    "ul",
                    { class: "found" },
                    data.tasks.map((/** @type {TaskHead} */ task) =>
                      h(
                        "li",
                        { key: task.id, "data-task": task.id },
                        h("a", { href: href(["tasks", task.id]) }, text(titleOf(task))),
                        " ",
                        stateLabel(task.state),
                        " ",
                        text(task.agent, "span", { class: "soft" }),
                        " ",
                        when(task.updated, { relative: true }),
                      ),
                    ),
                  )
                : null,
              !data.tasks.length && !data.agents.length && !data.hook
                ? empty(
                    h("p", null, "Nothing found."),
                    h("p", { class: "soft" }, `Searched: ${data.places.join(", ")}. Ended tasks are deleted after store.max_age.`),
                  )
                : null,
              data.searched && !data.searched.complete
                ? h(
                    "p",
                    { class: "note" },
                    `Searched ${count(data.searched.tasks)} tasks. `,
                    data.next ? button("Continue", { onclick: more }) : null,
                  )
                : null,
            ],
      ];
    },
  };
}
