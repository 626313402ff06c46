// Routes in the fragment of the address: `#/tasks/{id}?view=list`.

/** @param {string} hash @returns {Route} */
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { screen: parts[0] ?? "overview", path: parts.slice(1), query: new URLSearchParams(query) };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * Builds the fragment of a route. Empty values are left out, arrays repeat.
 * @param {(string | number)[]} path
 * @param {Record<string, any> | URLSearchParams} [query]
 */
export function href(path, query = {}) {
  const params = query instanceof URLSearchParams ? query : new URLSearchParams();
  if (!(query instanceof URLSearchParams)) {
    for (const [name, value] of Object.entries(query)) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== undefined && one !== null && one !== "") params.append(name, String(one));
      }
    }
  }
  const search = params.toString();
  return `#/${path.map((part) => encodeURIComponent(String(part))).join("/")}${search ? `?${search}` : ""}`;
}

/** @param {string} hash */
export const open = (hash) => {
  location.hash = hash;
};

/** Changes the address without an entry in the history: for filters and selections. @param {string} hash */
export function replace(hash) {
  history.replaceState(history.state, "", hash);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
