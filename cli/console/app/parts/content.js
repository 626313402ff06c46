// Parts of messages and artifacts. All of them are untrusted (S54): text is text, pictures are verified, documents are previewed in a
// sandbox, everything else is a download with a safe name (S56).
import { call, post, seg } from "../api.js";
import { h } from "../h.js";
import { bytes, safeName, text } from "../format.js";
import { json, treeState } from "./json.js";
import { markdown } from "./markdown.js";
import { dialog, save, toast } from "./dialog.js";
import { rerender, store } from "../store.js";

const FOLD_ABOVE = 256_000;
const SHOWN_FIRST = 16_000;
const MAX_IMAGE = 8 * 1024 * 1024;
const IMAGES = /^image\/(png|jpeg|gif|webp|avif)$/;
const PREVIEWS = /^(text\/html|image\/svg\+xml)$/;

/** How much of each long text is shown, pictures that were loaded, and trees. */
export const contentState = () => ({ shown: new Map(), images: new Map(), trees: new Map(), source: new Set() });

/**
 * Long text, folded. @param {string} value @param {string} id @param {ReturnType<typeof contentState>} state
 */
export function longText(value, id, state) {
  const limit = state.shown.get(id) ?? (value.length > FOLD_ABOVE ? SHOWN_FIRST : value.length);
  const folded = value
    .slice(0, limit)
    .replace(/[^\n]{2000,}/g, (line) =>
      state.shown.has(id) ? line : `${line.slice(0, 2000)} … [${bytes(line.length - 2000)} of this line folded]`,
    );
  const isFolded = limit < value.length || folded.length < limit;
  return [
    text(folded, "div", { class: "prose" }),
    isFolded
      ? h(
          "button",
          { type: "button", class: "quiet", onclick: () => (state.shown.set(id, Math.max(limit, SHOWN_FIRST) + FOLD_ABOVE), rerender()) },
          `Show more (${bytes(Math.min(limit, value.length))} of ${bytes(value.length)})`,
        )
      : null,
  ];
}

/**
 * One part in its 1.0 form.
 * @param {any} part
 * @param {string} id
 * @param {ReturnType<typeof contentState>} state
 * @param {{ task: string, artifact: string, index: number } | null} [source] where its bytes are, if it is a part of an artifact
 * @returns {VChild}
 */
export function partView(part, id, state, source = null) {
  const type = String(part.mediaType ?? "")
    .split(";")[0]
    .trim()
    .toLowerCase();
  if (typeof part.text === "string") {
    if (type === "text/markdown" && part.text.length < FOLD_ABOVE) return markdown(part.text);
    if (PREVIEWS.test(type)) return [longText(part.text, id, state), source ? actions(part, type, source, id, state) : null];
    return longText(part.text, id, state);
  }
  if (part.data !== undefined) {
    const tree = state.trees.get(id) ?? treeState();
    state.trees.set(id, tree);
    return json(part.data, tree, { depth: 3 });
  }
  const size = part.metadata?.["attache.omitted"]?.bytes ?? (typeof part.raw === "string" ? Math.floor(part.raw.length * 0.75) : undefined);
  const facts = h(
    "p",
    { class: "file" },
    "▤ ",
    text(part.filename || (part.url ? "file by address" : "file"), "strong"),
    " ",
    text(type || "unknown type", "span", { class: "soft" }),
    size === undefined ? null : ` · ${bytes(size)}`,
  );
  if (part.url)
    return [
      facts,
      text(part.url, "p", { class: "mono soft wrap" }),
      h("p", { class: "soft small" }, "The console does not fetch addresses of parts."),
    ];
  return [
    facts,
    source ? actions(part, type, source, id, state) : null,
    state.images.has(id) ? h("img", { src: state.images.get(id), alt: safeName(part.filename), class: "picture" }) : null,
  ];
}

/**
 * @param {any} part
 * @param {string} type
 * @param {{ task: string, artifact: string, index: number }} source
 * @param {string} id
 * @param {ReturnType<typeof contentState>} state
 */
function actions(part, type, source, id, state) {
  const path = `/tasks/${seg(source.task)}/artifacts/${seg(source.artifact)}/parts/${source.index}`;
  const fetchBlob = async () => (await call("GET", path, { headers: { Accept: "*/*" } })).blob();
  const guard = (/** @type {() => Promise<any>} */ action) => () => action().catch((error) => toast(error.message, true));
  const show = guard(async () => {
    const blob = await fetchBlob();
    if (blob.size > MAX_IMAGE) return toast(`The picture has ${bytes(blob.size)}; pictures above ${bytes(MAX_IMAGE)} are not shown`, true);
    if (!(await isPicture(blob, type))) return toast(`The bytes are no ${type}; the picture is not shown`, true);
    state.images.set(id, URL.createObjectURL(new Blob([blob], { type })));
    rerender();
  });
  const preview = guard(async () => {
    const ticket = await post(`/tasks/${seg(source.task)}/preview`, { artifact: source.artifact, part: source.index });
    const address = new URL(`../${String(ticket.url).replace(/^\//, "")}`, document.baseURI);
    await dialog(
      "Preview",
      () => h("iframe", { key: "frame", sandbox: "", src: address.href, title: "Preview without scripts and network" }),
      { wide: true, name: "preview" },
    );
  });
  return h(
    "div",
    { class: "buttons start" },
    h(
      "button",
      {
        type: "button",
        "data-action": "download",
        onclick: guard(async () => save(safeName(part.filename || source.artifact), await fetchBlob())),
      },
      "Download",
    ),
    IMAGES.test(type) ? h("button", { type: "button", "data-action": "show", onclick: show }, "Show") : null,
    PREVIEWS.test(type) && store.session?.server.features.includes("preview")
      ? h("button", { type: "button", "data-action": "preview", onclick: preview }, "Preview without scripts")
      : null,
  );
}

/** @type {Record<string, (bytes: Uint8Array, text: string) => boolean>} */
const MAGIC = {
  "image/png": (b) => b[0] === 0x89 && b[1] === 0x50 && b[2] === 0x4e && b[3] === 0x47,
  "image/jpeg": (b) => b[0] === 0xff && b[1] === 0xd8 && b[2] === 0xff,
  "image/gif": (_, t) => t.startsWith("GIF8"),
  "image/webp": (_, t) => t.startsWith("RIFF") && t.slice(8, 12) === "WEBP",
  "image/avif": (_, t) => t.slice(4, 12) === "ftypavif" || t.slice(4, 12) === "ftypavis",
};

/** Whether the first bytes are those of the type. @param {Blob} blob @param {string} type */
async function isPicture(blob, type) {
  const head = new Uint8Array(await blob.slice(0, 16).arrayBuffer());
  return MAGIC[type]?.(head, String.fromCharCode(...head)) ?? false;
}

/** First text of a message. @param {any} message */
export const textOf = (message) =>
  (message?.parts ?? [])
    .map((/** @type {any} */ part) => part.text)
    .filter((/** @type {any} */ t) => typeof t === "string")
    .join("\n");
