// A subset of Markdown: headings, lists, emphasis, code, tables, quotes. HTML stays text, images are not loaded, and a link shows
// its host and asks before it opens (S54).
import { h } from "../h.js";
import { plain, text } from "../format.js";
import { dialog } from "./dialog.js";

/** @param {string} source @returns {VNode} */
export function markdown(source) {
  const lines = source.split("\n");
  /** @type {VChild[]} */
  const out = [];
  let at = 0;
  const take = (/** @type {RegExp} */ pattern) => {
    const from = at;
    while (at < lines.length && pattern.test(lines[at])) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    if (/^\s*```/.test(line)) {
      at += 1;
      const body = take(/^(?!\s*```)/);
      at += 1;
      out.push(h("pre", { tabindex: "0" }, text(body.join("\n"), "code")));
    } else if (heading) {
      at += 1;
      out.push(h("p", { class: `md-h md-h${heading[1].length}` }, inline(heading[2])));
    } else if (/^\s*([-*+]|\d+[.)])\s/.test(line)) {
      const isOrdered = /^\s*\d/.test(line);
      const items = take(/^(\s*([-*+]|\d+[.)])\s|\s+\S)/);
      out.push(
        h(
          isOrdered ? "ol" : "ul",
          null,
          items.map((item) => h("li", null, inline(item.replace(/^\s*([-*+]|\d+[.)])\s+/, "")))),
        ),
      );
    } else if (/^\s*>/.test(line)) {
      out.push(
        h(
          "blockquote",
          null,
          take(/^\s*>/).map((quote) => h("p", null, inline(quote.replace(/^\s*>\s?/, "")))),
        ),
      );
    } else if (/^\s*\|.*\|\s*$/.test(line) && /^\s*\|[\s:|-]+\|\s*$/.test(lines[at + 1] ?? "")) {
      out.push(table(take(/^\s*\|/)));
    } else if (!line.trim()) {
      at += 1;
    } else {
      const body = take(/^(?!\s*```|#{1,6}\s|\s*([-*+]|\d+[.)])\s|\s*>|\s*$)/);
      if (!body.length) body.push(lines[at++]);
      out.push(h("p", null, inline(body.join("\n"))));
    }
  }
  return h("div", { class: "markdown u" }, out);
}

/** @param {string[]} rows */
function table(rows) {
  const cells = (/** @type {string} */ row) =>
    row
      .trim()
      .replace(/^\||\|$/g, "")
      .split("|")
      .map((cell) => inline(cell.trim()));
  const [head, , ...body] = rows;
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" },
    h(
      "table",
      null,
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          cells(head).map((cell) => h("th", null, cell)),
        ),
      ),
      h(
        "tbody",
        null,
        body.map((row) =>
          h(
            "tr",
            null,
            cells(row).map((cell) => h("td", null, cell)),
          ),
        ),
      ),
    ),
  );
}

const INLINE =
  /(`[^`\n]+`)|(!\[[^\]\n]*\]\([^)\s]+[^)\n]*\))|(\[[^\]\n]+\]\([^)\s]+\))|(\*\*[^*\n]+\*\*|__[^_\n]+__)|(\*[^*\n]+\*)|(https?:\/\/[^\s<>()"']+)/;

/** @param {string} source @returns {VChild[]} */
function inline(source) {
  const match = INLINE.exec(source);
  if (!match) return [text(source)];
  const before = source.slice(0, match.index);
  const found = match[0];
  return [before ? text(before) : null, span(found), ...inline(source.slice(match.index + found.length))];
}

/** @param {string} found @returns {VChild} */
function span(found) {
  if (found.startsWith("`")) return text(found.slice(1, -1), "code");
  if (found.startsWith("![")) {
    const [, label, url] = /^!\[(.*?)\]\((\S+?)[\s)]/.exec(`${found} `) ?? ["", "", ""];
    return h("span", { class: "chip", title: "Images of other servers are not loaded" }, "▨ image ", text(label), " · ", text(hostOf(url)));
  }
  if (found.startsWith("[")) {
    const [, label, url] = /^\[(.*)\]\((\S+)\)$/.exec(found) ?? ["", found, ""];
    return outside(url, label);
  }
  if (found.startsWith("**") || found.startsWith("__")) return text(found.slice(2, -2), "strong");
  if (found.startsWith("*")) return text(found.slice(1, -1), "em");
  return outside(found, found);
}

/** @param {string} url */
function hostOf(url) {
  try {
    return new URL(url).host || url;
  } catch {
    return url;
  }
}

/**
 * A link to another server. Only http and https open, after a dialog with the full address.
 * @param {string} url
 * @param {string} label
 */
export function outside(url, label) {
  if (!/^https?:\/\//i.test(url)) return text(`${label} (${url})`);
  const show = () =>
    dialog("Open an address of another server?", (close) => [
      h("p", null, "This address comes from an agent or a caller:"),
      text(url, "pre", { class: "wrap" }),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", onclick: () => close() }, "Cancel"),
        h("a", { class: "button", href: url, target: "_blank", rel: "noopener noreferrer", onclick: () => close() }, "Open"),
      ),
    ]);
  return h(
    "button",
    { type: "button", class: "link", title: plain(url), onclick: show },
    text(label),
    label === url ? null : [" ", text(`(${hostOf(url)})`, "span", { class: "soft" })],
  );
}
