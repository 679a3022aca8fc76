// <ms-grid>: rows in a grid of which only the visible ones are elements, so that 20,000 of them are as quick as 20.
// Keys: arrows, Page Up and Down, Home, End; Enter opens a row. A click on a title sorts.

import { h } from "./dom.js";
import { cell, plain, visible } from "./text.js";

const ROW_PX = 32;
const OVERSCAN = 6;

/**
 * @typedef {{ name: string, type?: string, width?: string, number?: boolean, value: (row: any) => unknown,
 *   draw?: (row: any) => any }} Column
 *   `value`: to sort by and to show; `draw`: nodes in place of the value's text.
 */

let numbers = 0;

export class Grid extends HTMLElement {
  #id = `grid-${++numbers}`;
  /** @type {Column[]} */
  #columns = [];
  /** @type {any[]} */
  #rows = [];
  /** @type {any[]} */
  #shown = [];
  /** @type {{ column: number, down: boolean } | null} */
  #order = null;
  #active = 0;
  #head = h("div", { class: "grid-head", role: "rowgroup" });
  #body = h("div", { class: "grid-rows", role: "presentation" });
  #table = h("div", { class: "grid-table", role: "grid", tabindex: "0" }, this.#head, h("div", { class: "grid-body", role: "rowgroup" }, this.#body));
  #empty = h("div", { class: "empty" });
  /** @type {Map<any, HTMLElement>} */
  #drawn = new Map();
  #frame = 0;
  #loaded = false;
  /** @type {((row: any) => void) | null} */
  onopen = null;
  /** What makes two rows the same one, when the rows are set again. @type {(row: any) => unknown} */
  keyOf = (row) => row;

  connectedCallback() {
    if (this.contains(this.#table)) return;
    this.append(this.#table, this.#empty);
    this.#table.id = this.#id;
    this.#table.setAttribute("aria-label", this.getAttribute("label") ?? "Rows");
    this.#table.addEventListener("scroll", () => this.#later());
    this.#table.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#later()).observe(this.#table);
  }

  /** @param {Column[]} columns */
  set columns(columns) {
    this.#columns = columns;
    this.#order = null;
    const widths = columns.map((column) => column.width ?? (column.number ? "minmax(90px, 0.6fr)" : "minmax(120px, 1fr)"));
    this.style.setProperty("--columns", widths.join(" "));
    this.#head.replaceChildren(h("div", { class: "grid-row", role: "row", "aria-rowindex": "1" }, columns.map((column, at) => this.#title(column, at))));
    this.#forget();
    this.#sort();
  }

  /** @param {any[]} rows */
  set rows(rows) {
    this.#rows = rows;
    this.#loaded = true;
    this.#sort();
  }

  get rows() {
    return this.#rows;
  }

  /** Shown where there are no rows. @param {any} content */
  set empty(content) {
    this.#empty.replaceChildren(content);
  }

  /** @param {Column} column @param {number} at */
  #title(column, at) {
    const button = h("button", { type: "button", tabindex: "-1", title: `Sort by ${visible(column.name)}`, onclick: () => this.#sortBy(at) },
      h("span", {}, visible(column.name)), column.type && h("small", {}, column.type));
    return h("div", { role: "columnheader", class: column.number ? "number" : "", "aria-sort": "none" }, button);
  }

  /** @param {number} column */
  #sortBy(column) {
    const down = Boolean(this.#columns[column].number);
    if (this.#order?.column !== column) this.#order = { column, down };
    else this.#order = this.#order.down === down ? { column, down: !down } : null;
    [...this.#head.querySelectorAll("[role=columnheader]")].forEach((node, at) => {
      node.setAttribute("aria-sort", this.#order?.column === at ? (this.#order.down ? "descending" : "ascending") : "none");
    });
    this.#sort();
  }

  #sort() {
    const order = this.#order;
    this.#shown = this.#rows;
    if (order) {
      const { value } = this.#columns[order.column];
      const sign = order.down ? -1 : 1;
      this.#shown = this.#rows.map((row) => ({ row, by: value(row) }))
        .sort((a, b) => sign * compared(a.by, b.by)).map(({ row }) => row);
    }
    this.#active = Math.min(this.#active, Math.max(0, this.#shown.length - 1));
    this.#table.setAttribute("aria-rowcount", String(this.#shown.length + 1));
    this.#body.style.height = `${this.#shown.length * ROW_PX}px`;
    this.#empty.hidden = this.#shown.length > 0 || !this.#loaded; // nothing is told before somebody has looked
    this.#table.classList.toggle("no-rows", this.#shown.length === 0);
    this.#later();
  }

  #later() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  /** Elements of rows that are seen again are used again where they show the same. */
  #draw() {
    const top = this.#table.scrollTop;
    const first = Math.max(0, Math.floor(top / ROW_PX) - OVERSCAN);
    const last = Math.min(this.#shown.length, Math.ceil((top + this.#table.clientHeight) / ROW_PX) + OVERSCAN);
    const before = this.#drawn;
    this.#drawn = new Map();
    for (let at = first; at < last; at++) {
      const row = this.#shown[at];
      const node = before.get(row) ?? this.#row(row);
      before.delete(row);
      this.#drawn.set(row, node);
      node.style.transform = `translateY(${at * ROW_PX}px)`;
      node.id = `${this.#id}-${at}`;
      node.setAttribute("aria-rowindex", String(at + 2));
      node.classList.toggle("active", at === this.#active);
      if (node.parentNode !== this.#body) this.#body.append(node);
    }
    for (const node of before.values()) node.remove();
    if (this.#shown.length) this.#table.setAttribute("aria-activedescendant", `${this.#id}-${this.#active}`);
    else this.#table.removeAttribute("aria-activedescendant");
  }

  #forget() {
    for (const node of this.#drawn.values()) node.remove();
    this.#drawn.clear();
  }

  /** @param {any} row */
  #row(row) {
    const cells = this.#columns.map((column) =>
      h("div", { role: "gridcell", class: column.number ? "number" : "" }, column.draw ? column.draw(row) : cell(column.value(row))));
    const node = h("div", { role: "row", class: this.onopen ? "grid-row opens" : "grid-row" }, cells);
    node.addEventListener("click", (event) => {
      if (/** @type {Element} */ (event.target).closest("a, button") || String(getSelection())) return;
      this.#active = this.#shown.indexOf(row);
      this.#later();
      this.onopen?.(row);
    });
    return node;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.target !== this.#table || event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.#table.clientHeight / ROW_PX) - 1);
    /** @type {Record<string, number>} */
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && this.#shown[this.#active] !== undefined) this.onopen?.(this.#shown[this.#active]);
    else if (event.key in steps) this.#activate(this.#active + steps[event.key]);
    else return;
    event.preventDefault();
  }

  /** @param {number} at */
  #activate(at) {
    this.#active = Math.min(this.#shown.length - 1, Math.max(0, at));
    const top = this.#active * ROW_PX;
    const room = this.#table.clientHeight - this.#head.offsetHeight - ROW_PX;
    if (top < this.#table.scrollTop) this.#table.scrollTop = top;
    else if (top > this.#table.scrollTop + room) this.#table.scrollTop = top - room;
    this.#later();
  }
}

/** NULL is last; numbers by their size, also such as are texts. @param {any} a @param {any} b */
function compared(a, b) {
  const [emptyA, emptyB] = [a === null || a === undefined, b === null || b === undefined];
  if (emptyA || emptyB) return Number(emptyA) - Number(emptyB);
  const [numberA, numberB] = [Number(a), Number(b)];
  if (a !== "" && b !== "" && !Number.isNaN(numberA) && !Number.isNaN(numberB)) return numberA - numberB;
  const [textA, textB] = [plain(a), plain(b)];
  return textA < textB ? -1 : textA > textB ? 1 : 0;
}

customElements.define("ms-grid", Grid);

/** @param {string} label @param {Column[]} columns @param {{ empty?: any, onopen?: (row: any) => void }} [options] */
export function grid(label, columns, { empty = "Nothing here.", onopen } = {}) {
  const node = /** @type {Grid} */ (/** @type {unknown} */ (h("ms-grid", { label })));
  node.onopen = onopen ?? null;
  node.empty = empty;
  node.columns = columns;
  return node;
}
