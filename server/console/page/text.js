// Texts of others, made safe to look at; numbers, sizes and times, made easy to read.

import { h } from "./dom.js";

export const CELL_MAX = 200;
const SHOWN_MAX = 20_000;

// Controls, and what reorders or hides its neighbours: a record must not look like something that it is not.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|[\u{e0000}-\u{e0fff}]/gu;
const NAMED = new Map([["\n", "↵"], ["\t", "⇥"], ["\r", "␍"], ["\0", "␀"]]);

/** One hidden character as something to see. @param {string} char */
function escaped(char) {
  return NAMED.get(char) ?? `U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** The text with each hidden character spelled out: for labels, titles and attributes. @param {unknown} text */
export function visible(text) {
  return String(text).replace(HIDDEN, (char) => (NAMED.has(char) ? escaped(char) : `[${escaped(char)}]`));
}

/**
 * A text as nodes; hidden characters stand out. `lines` keeps line breaks and tabs.
 * @param {string} text @param {{ lines?: boolean }} [options] @returns {Node[]}
 */
export function pieces(text, { lines = false } = {}) {
  /** @type {Node[]} */
  const found = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (lines && (match[0] === "\n" || match[0] === "\t")) continue;
    if (match.index > from) found.push(document.createTextNode(text.slice(from, match.index)));
    found.push(h("span", { class: "escape" }, escaped(match[0])));
    from = match.index + match[0].length;
  }
  if (from < text.length) found.push(document.createTextNode(text.slice(from)));
  return found;
}

/** A value as it stands in a cell: NULL, a text, JSON. @param {unknown} value @returns {string} */
export function plain(value) {
  if (value === null || value === undefined) return "NULL";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/**
 * A cell: cut where it is long, the rest is in a dialog.
 * @param {unknown} value @param {{ max?: number, more?: (() => Promise<string>) | null, length?: number }} [options]
 *   `more`: fetches the whole text, where the server has cut it; `length`: of the whole text.
 */
export function cell(value, { max = CELL_MAX, more = null, length } = {}) {
  if (value === null || value === undefined) return h("span", { class: "null" }, "NULL");
  const text = plain(value);
  const whole = length ?? text.length;
  if (whole <= max) return h("bdi", { class: "cell" }, pieces(text));
  const button = h("button", { type: "button", class: "more", title: "Show the whole text" }, `${count(whole)} characters`);
  button.addEventListener("click", async (event) => {
    event.stopPropagation();
    showText(more === null ? text : await more());
  });
  return h("span", { class: "cut" }, button, " ", h("bdi", { class: "cell" }, pieces(text.slice(0, max))), "…"); // behind it, it would be cut off
}

/** A dialog with a long text, a piece at a time: a megabyte at once would hold the page up. @param {string} text */
export function showText(text) {
  const pretty = prettyJson(text);
  const body = h("pre", { class: "text", tabindex: "0" }, pieces(pretty.slice(0, SHOWN_MAX), { lines: true }));
  let shown = SHOWN_MAX;
  const rest = h("button", { type: "button" }, "Show more");
  const update = () => {
    rest.hidden = shown >= pretty.length;
    rest.textContent = `Show more (${count(Math.max(0, pretty.length - shown))} characters left)`;
  };
  rest.addEventListener("click", () => {
    body.append(...pieces(pretty.slice(shown, shown + SHOWN_MAX), { lines: true }));
    shown += SHOWN_MAX;
    update();
  });
  update();
  dialog("Text", h("p", { class: "soft" }, `${count(text.length)} characters`), body, rest);
}

/** A dialog over the page; Escape closes it, and it is gone then. @param {string} title @param {...any} content */
export function dialog(title, ...content) {
  const close = h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => node.close() }, "✕");
  const node = h("dialog", { "aria-label": title }, h("header", {}, h("h2", {}, title), close), content);
  node.addEventListener("close", () => node.remove());
  document.body.append(node);
  node.showModal();
  return node;
}

/** JSON with line breaks; another text as it is. @param {string} text */
export function prettyJson(text) {
  if (!/^\s*[[{]/.test(text) || text.length > 2_000_000) return text;
  try {
    return JSON.stringify(parseExactly(text), null, 2).replaceAll(/"\u0001([^"]*)\u0001"/g, "$1");
  } catch {
    return text;
  }
}

/** Numbers that a double cannot hold stay texts, between two marks. @param {string} text */
const parseExactly = (text) => JSON.parse(text, exact((source) => `\u0001${source}\u0001`));

/** A line of rows: DECIMALs and large BIGINTs as the texts they were sent as. @param {string} line */
export const parseRow = (line) => JSON.parse(line, exact((source) => source));

/** For `JSON.parse`: what to take in place of a number that has lost digits (a browser that does not tell the source
 * gives the number). @param {(source: string) => any} keep @returns {any} */
function exact(keep) {
  return (/** @type {string} */ _, /** @type {any} */ value, /** @type {{ source?: string }} */ context) => {
    const source = context?.source;
    return typeof value !== "number" || source === undefined || String(value) === source ? value : keep(source);
  };
}

const whole = new Intl.NumberFormat("en-US");
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

/** @param {number} number */
export const count = (number) => whole.format(number);

/** "12.3 k/s". @param {number | null | undefined} perSecond */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined || !Number.isFinite(perSecond)) return "–";
  return `${perSecond > 0 && perSecond < 10 ? perSecond.toFixed(1) : short.format(Math.round(perSecond))}/s`;
}

/** @param {number} number */
export const compact = (number) => (Math.abs(number) < 10_000 ? whole.format(number) : short.format(number));

/** @param {number} bytes */
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

/** A time in UTC: "2026-11-24 16:07:08.123". @param {number | null | undefined} ms */
export function time(ms) {
  if (ms === null || ms === undefined) return "–";
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString().replace("T", " ").replace("Z", "");
}

/** A name as SQL text. No reserved word has an underscore or a digit. @param {string} name */
export function quoted(name) {
  return /^[A-Z_][A-Z0-9_]*$/.test(name) && /[_0-9]/.test(name) ? name : `\`${name.replaceAll("`", "``")}\``;
}
