// Virtual nodes: a view is a function from data to nodes; `render` applies the difference to the document. Text always becomes
// a text node and no markup is parsed, so untrusted content cannot become an element.

const SVG = "http://www.w3.org/2000/svg";

/** Properties that are set on the element, not as an attribute: the attribute is only the initial value. */
const PROPERTIES = new Set(["value", "checked", "disabled", "open", "indeterminate", "scrollTop", "selected", "readOnly", "hidden"]);

/**
 * Creates a virtual node. Strings and numbers become text nodes; null, undefined and false are skipped; arrays are flattened.
 * `key` identifies a node among its siblings; `hook` runs with the element after each render.
 * @param {string} tag
 * @param {VProps | null} [props]
 * @param {...VChild} children
 * @returns {VNode}
 */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: flatten(children), key: props?.key, hook: props?.hook };
}

/**
 * @param {VChild[]} children
 * @param {(VNode | string)[]} [into]
 */
function flatten(children, into = []) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === true) continue;
    if (Array.isArray(child)) flatten(child, into);
    else if (typeof child === "object") into.push(child);
    else into.push(String(child));
  }
  return into;
}

/** Virtual node that an element was rendered from. @type {WeakMap<Node, VNode>} */
const rendered = new WeakMap();

/**
 * Makes the children of `container` those of `children`.
 * @param {Element} container
 * @param {VChild[]} children
 */
export function render(container, children) {
  patchChildren(container, flatten(children), false);
}

/**
 * @param {VNode} vnode
 * @param {boolean} svg
 */
function create(vnode, svg) {
  const inSvg = svg || vnode.tag === "svg";
  const element = inSvg ? document.createElementNS(SVG, vnode.tag) : document.createElement(vnode.tag);
  const blank = { tag: vnode.tag, props: {}, children: [] };
  update(/** @type {HTMLElement} */ (element), blank, vnode, inSvg);
  return element;
}

/**
 * @param {HTMLElement} element
 * @param {VNode} before
 * @param {VNode} after
 * @param {boolean} svg
 */
function update(element, before, after, svg) {
  for (const name in before.props) if (!(name in after.props)) setProperty(element, name, undefined, before.props[name]);
  const late = [];
  for (const name in after.props) {
    // A select takes its value only after its options exist.
    if (name === "value" || name === "scrollTop") late.push(name);
    else if (after.props[name] !== before.props[name]) setProperty(element, name, after.props[name], before.props[name]);
  }
  patchChildren(element, after.children, svg && after.tag !== "foreignObject");
  for (const name of late) setProperty(element, name, after.props[name], before.props[name]);
  rendered.set(element, after);
  if (after.hook) after.hook(element);
}

/**
 * @param {any} element
 * @param {string} name
 * @param {any} value
 * @param {any} before
 */
function setProperty(element, name, value, before) {
  if (name === "key" || name === "hook") return;
  if (name === "style") {
    for (const property in before ?? {}) if (!value || !(property in value)) element.style.removeProperty(property);
    for (const property in value ?? {}) {
      if (before?.[property] !== value[property]) element.style.setProperty(property, String(value[property]));
    }
  } else if (name.startsWith("on")) {
    element[name] = value ?? null;
  } else if (PROPERTIES.has(name)) {
    const next = value ?? (name === "value" ? "" : false);
    if (element[name] !== next) element[name] = next;
  } else if (value === undefined || value === null || value === false) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @param {Node} parent
 * @param {(VNode | string)[]} children
 * @param {boolean} svg
 */
function patchChildren(parent, children, svg) {
  /** @type {Map<string | number, Node>} */
  const keyed = new Map();
  // Nodes that go are removed first: the others keep their place, and with it focus and scroll position.
  const kept = new Set(children.map((child) => (typeof child === "string" ? undefined : child.key)));
  for (const node of [...parent.childNodes]) {
    const key = rendered.get(node)?.key;
    if (key === undefined) continue;
    if (kept.has(key)) keyed.set(key, node);
    else parent.removeChild(node);
  }
  let next = parent.firstChild;
  for (const child of children) {
    const reused = pick(child, next, keyed);
    if (!reused) {
      parent.insertBefore(typeof child === "string" ? document.createTextNode(child) : create(child, svg), next);
      continue;
    }
    if (reused === next) next = next.nextSibling;
    else parent.insertBefore(reused, next);
    if (typeof child === "string") {
      if (reused.nodeValue !== child) reused.nodeValue = child;
    } else {
      const old = rendered.get(reused);
      if (old && old !== child) update(/** @type {HTMLElement} */ (reused), old, child, svg || child.tag === "svg");
    }
  }
  while (next) {
    const after = next.nextSibling;
    parent.removeChild(next);
    next = after;
  }
}

/**
 * Returns the existing node that shows this child: the one with its key, or an unkeyed one of the same kind in its place.
 * @param {VNode | string} child
 * @param {Node | null} place
 * @param {Map<string | number, Node>} keyed
 */
function pick(child, place, keyed) {
  if (typeof child === "string") return place?.nodeType === Node.TEXT_NODE ? place : null;
  if (child.key !== undefined) {
    const node = keyed.get(child.key);
    keyed.delete(child.key);
    return node && rendered.get(node)?.tag === child.tag ? node : null;
  }
  const old = place ? rendered.get(place) : undefined;
  return place && old && old.key === undefined && old.tag === child.tag ? place : null;
}
