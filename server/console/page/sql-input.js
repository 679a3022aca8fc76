// A field for SQL: coloured, with completion. Keys: Ctrl+Enter runs, Ctrl+Space completes, Tab or Enter takes a word,
// Escape closes the list; where no list is open, Tab moves on, as everywhere.

import { h } from "./dom.js";
import { Completion, highlighted } from "./sql-text.js";
import { visible } from "./text.js";

const PAUSE_MS = 150;
const COLOURED_MAX = 50_000; // characters; a longer text stays plain

export class SqlInput {
  #completion = new Completion();
  #colours = h("pre", { class: "sql-colours", "aria-hidden": "true" });
  #list = h("ul", { class: "completions", role: "listbox", id: "completions", "aria-label": "Completions", hidden: true });
  /** @type {import("./sql-text.js").Candidate[]} */
  #candidates = [];
  #word = "";
  #chosen = 0;
  #timer = 0;
  #asked = 0;
  #signal;

  /** @param {AbortSignal} signal @param {() => void} run */
  constructor(signal, run) {
    this.#signal = signal;
    this.field = h("textarea", {
      class: "sql-field", spellcheck: "false", autocapitalize: "off", autocomplete: "off", "aria-label": "SQL", rows: "8", wrap: "off",
      role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": "completions", "aria-haspopup": "listbox",
    });
    this.field.addEventListener("input", () => {
      this.#paint();
      this.#close();
      if (/[A-Za-z_.]$/.test(this.#before())) this.#timer = setTimeout(() => this.#offer(), PAUSE_MS);
    });
    this.field.addEventListener("scroll", () => this.#follow());
    this.field.addEventListener("blur", () => setTimeout(() => this.#close(), 150));
    this.field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.#key(event, run));
    this.node = h("div", { class: "sql-input" }, this.#colours, this.field, this.#list);
  }

  get value() {
    return this.field.value;
  }

  set value(sql) {
    this.field.value = sql;
    this.#paint();
  }

  /** What is selected, else all. */
  get selected() {
    const { selectionStart: from, selectionEnd: to, value } = this.field;
    return from === to ? { text: value, start: 0 } : { text: value.slice(from, to), start: from };
  }

  /** Names may have changed. */
  refresh() {
    this.#completion.forget();
  }

  /** Marks a part of the text. @param {number} from @param {number} length */
  mark(from, length) {
    this.field.focus();
    this.field.setSelectionRange(from, from + Math.max(1, length));
  }

  #before() {
    return this.field.value.slice(0, this.field.selectionStart);
  }

  #paint() {
    const sql = this.field.value;
    this.node.classList.toggle("plain", sql.length > COLOURED_MAX);
    if (sql.length > COLOURED_MAX) return;
    this.#colours.replaceChildren(...highlighted(sql).map(({ text, kind }) => (kind ? h("span", { class: `sql-${kind}` }, text) : document.createTextNode(text))), "\n");
    this.#follow();
  }

  #follow() {
    this.#colours.scrollTop = this.field.scrollTop;
    this.#colours.scrollLeft = this.field.scrollLeft;
  }

  /** @param {KeyboardEvent} event @param {() => void} run */
  #key(event, run) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      this.#close();
      run();
    } else if (event.key === " " && event.ctrlKey) this.#offer();
    else if (this.#list.hidden) return;
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") this.#choose(this.#chosen + (event.key === "ArrowDown" ? 1 : -1));
    else if (event.key === "Enter" || event.key === "Tab") this.#take(this.#candidates[this.#chosen]);
    else if (event.key === "Escape") this.#close();
    else return;
    event.preventDefault();
  }

  async #offer() {
    const number = ++this.#asked;
    try {
      const { word, candidates } = await this.#completion.at(this.#before(), this.#signal);
      if (number !== this.#asked || document.activeElement !== this.field) return;
      [this.#word, this.#candidates] = [word, candidates];
    } catch {
      return; // completion is a help: the editor works without
    }
    this.#list.replaceChildren(...this.#candidates.map((candidate, at) => {
      const item = h("li", { role: "option", id: `completion-${at}` }, h("span", {}, visible(candidate.text)), h("small", {}, candidate.kind));
      item.addEventListener("mousedown", (event) => {
        event.preventDefault();
        this.#take(candidate);
      });
      return item;
    }));
    this.#list.hidden = this.#candidates.length === 0;
    this.field.setAttribute("aria-expanded", String(!this.#list.hidden));
    if (this.#candidates.length) this.#choose(0);
    this.#place();
  }

  /** Below the line of the cursor. */
  #place() {
    const lines = this.#before().split("\n");
    const style = getComputedStyle(this.field);
    const top = lines.length * parseFloat(style.lineHeight) + parseFloat(style.paddingTop) - this.field.scrollTop + 2;
    this.#list.style.top = `${Math.min(top, this.field.clientHeight)}px`;
    this.#list.style.left = `calc(${(lines.at(-1) ?? "").length - this.#word.length}ch + ${style.paddingLeft} - ${this.field.scrollLeft}px)`;
  }

  /** @param {number} at */
  #choose(at) {
    this.#chosen = (at + this.#candidates.length) % this.#candidates.length;
    [...this.#list.children].forEach((item, each) => {
      item.setAttribute("aria-selected", String(each === this.#chosen));
      if (each === this.#chosen) item.scrollIntoView({ block: "nearest" });
    });
    this.field.setAttribute("aria-activedescendant", `completion-${this.#chosen}`);
  }

  /** @param {import("./sql-text.js").Candidate} candidate */
  #take({ text }) {
    const end = this.field.selectionStart;
    this.field.setRangeText(`${text} `, end - this.#word.length, end, "end");
    this.#close();
    this.#paint();
  }

  #close() {
    clearTimeout(this.#timer);
    this.#asked++; // an answer that comes now is for a list that is closed
    this.#list.hidden = true;
    this.field.setAttribute("aria-expanded", "false");
    this.field.removeAttribute("aria-activedescendant");
  }
}
