// The rows of a running query: the newest ones, or the latest of each key; at most as many as the reader wants to keep.

import { parseRow } from "./text.js";

/** @typedef {{ kind: string, queryId: string, columnNames: string[], columnTypes: string[], keyColumns: number[] | null }} Header */
/** @typedef {{ at: number, values: any[] }} Kept */

export class LiveRows {
  /** Lines that came since the last look: what is overtaken is never parsed. @type {{ at: number, line: string }[]} */
  #waiting = [];
  /** @type {Map<string | number, Kept>} */
  #rows = new Map();
  #number = 0;
  /** @type {Header | null} */
  header = null;
  received = 0;
  deleted = 0;
  finalMessage = "";
  /** Whether the server has said that this was all. */
  complete = false;
  /** @type {{ message: string, error_code: number } | null} */
  error = null;

  /** @param {number} most */
  constructor(most) {
    this.most = most;
  }

  /** Whether a row replaces the one of its key. */
  get keyed() {
    return this.header?.kind === "PUSH" && this.header.keyColumns !== null && this.header.keyColumns.length > 0;
  }

  /** @param {string[]} lines @param {number} [now] */
  take(lines, now = Date.now()) {
    for (const line of lines) {
      if (line[0] === "[") {
        this.received++;
        this.#waiting.push({ at: now, line });
      } else this.#other(line, now);
    }
    // Without keys only the newest count; with keys each line may be of another key.
    if (!this.keyed && this.#waiting.length > this.most) this.#waiting.splice(0, this.#waiting.length - this.most);
  }

  /** The rows, the newest first. @returns {Kept[]} */
  rows() {
    for (const { at, line } of this.#waiting) this.#keep({ at, values: parseRow(line) });
    this.#waiting = [];
    return [...this.#rows.values()].reverse();
  }

  /** @param {string} line @param {number} now */
  #other(line, now) {
    const told = line[0] === "{" ? parseRow(line) : null;
    if (told === null) { // PRINT answers lines of text
      this.header ??= { kind: "PRINT", queryId: "", columnNames: ["record"], columnTypes: [""], keyColumns: null };
      this.received++;
      this.#waiting.push({ at: now, line: JSON.stringify([line]) });
    } else if (told.columnNames) this.header = told;
    else if (told.tombstone) this.#forget(told.tombstone);
    else if (told.errorMessage) this.error = told.errorMessage;
    else if ("finalMessage" in told) {
      this.complete = true;
      this.finalMessage = told.finalMessage ?? "";
    }
  }

  /** @param {Kept} row */
  #keep(row) {
    const key = this.keyed ? this.#keyOf(row.values) : this.#number++;
    this.#rows.delete(key);
    this.#rows.set(key, row);
    if (this.#rows.size > this.most) this.#rows.delete(/** @type {any} */ (this.#rows.keys().next().value));
  }

  /** @param {any[]} values */
  #forget(values) {
    this.rows(); // what came before it
    if (this.#rows.delete(this.#keyOf(values))) this.deleted++;
  }

  /** @param {any[]} values */
  #keyOf(values) {
    return JSON.stringify((this.header?.keyColumns ?? []).map((at) => values[at]));
  }
}
