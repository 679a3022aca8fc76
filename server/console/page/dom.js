// Elements. Children are nodes or texts, and a text becomes a text node: no record can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * An element: `h("button", { class: "plain", onclick: run }, "Run")`. Attributes that are functions listen, true is an
 * attribute without a value, and false, null and undefined are none.
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement & Record<string, any>}
 */
export function h(tag, attributes = {}, ...children) {
  return /** @type {any} */ (filled(document.createElement(tag), attributes, children));
}

/** As `h`, of SVG. @param {string} tag @param {Record<string, unknown>} [attributes] @param {...(Child | Child[])} children */
export function s(tag, attributes = {}, ...children) {
  return /** @type {SVGElement & Record<string, any>} */ (filled(document.createElementNS(SVG, tag), attributes, children));
}

/** @param {Element} node @param {Record<string, unknown>} attributes @param {(Child | Child[])[]} children */
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false).map(asNode));
  return node;
}

/** @param {any} child */
const asNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

/** Replaces the children of a node, and only if that changes what is on the screen: a selection or a focus stays.
 * @param {Element} node @param {...Child} children */
export function fill(node, ...children) {
  const wanted = h("div", {}, children);
  if (wanted.isEqualNode(h("div", {}, [...node.childNodes].map((child) => child.cloneNode(true))))) return;
  node.replaceChildren(...wanted.childNodes);
}

/** Sets a text where it is another one. @param {Element} node @param {string} text */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Calls `draw` at most once per `ms`, and once more after the last call. @param {() => void} draw @param {number} ms */
export function atMostEvery(ms, draw) {
  let waiting = 0;
  let drawn = -Infinity;
  const later = () => {
    waiting = 0;
    drawn = performance.now();
    draw();
  };
  return () => {
    waiting ||= setTimeout(later, Math.max(0, drawn + ms - performance.now()));
  };
}
