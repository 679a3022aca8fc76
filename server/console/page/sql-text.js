// Texts of SQL in the editor: where statements begin, which word the cursor is in, and what may come next.

import { api } from "./api.js";
import { quoted } from "./text.js";

// A text, a quoted name, a comment, a function's body: a semicolon inside is no end. An unfinished one runs to the end.
const PIECE = /'(?:[^']|'')*(?:'|$)|`(?:[^`]|``)*(?:`|$)|"(?:[^"]|"")*(?:"|$)|--[^\n]*|\/\*[^]*?(?:\*\/|$)|\$\$[^]*?(?:\$\$|$)|;/g;

/** @typedef {{ text: string, start: number }} Statement */

/** The statements of a text, with their semicolons. @param {string} sql @returns {Statement[]} */
export function statements(sql) {
  /** @type {Statement[]} */
  const found = [];
  let start = 0;
  const take = (/** @type {number} */ end) => {
    const text = sql.slice(start, end);
    const blank = /^\s*/.exec(text)?.[0].length ?? 0;
    if (uncommented(text).replaceAll(";", "").trim()) found.push({ text: text.trim(), start: start + blank });
    start = end;
  };
  for (const match of sql.matchAll(PIECE)) if (match[0] === ";") take(match.index + 1);
  take(sql.length);
  return found;
}

/** @param {string} sql */
const uncommented = (sql) => sql.replaceAll(PIECE, (piece) => (piece.startsWith("--") || piece.startsWith("/*") ? " " : piece));

/** Whether a statement answers with rows. @param {string} sql */
export const givesRows = (sql) => /^\s*\(*\s*(select|print|with)\b/i.test(uncommented(sql));

/** Words and colours: pieces of a text, each with a class. @param {string} sql @returns {{ text: string, kind: string }[]} */
export function highlighted(sql) {
  const found = [];
  let from = 0;
  const WORDS = /'(?:[^']|'')*(?:'|$)|`(?:[^`]|``)*(?:`|$)|--[^\n]*|\/\*[^]*?(?:\*\/|$)|\$\$[^]*?(?:\$\$|$)|\b\d+(?:\.\d+)?\b|[A-Za-z_]\w*/g;
  for (const match of sql.matchAll(WORDS)) {
    if (match.index > from) found.push({ text: sql.slice(from, match.index), kind: "" });
    found.push({ text: match[0], kind: kindOf(match[0]) });
    from = match.index + match[0].length;
  }
  if (from < sql.length) found.push({ text: sql.slice(from), kind: "" });
  return found;
}

const BOLD = new Set(("ADD ALL ALTER AND ARRAY AS ASSERT BETWEEN BY CASE CAST CHANGES COLUMN CREATE DELETE DESCRIBE DISTINCT DROP ELSE EMIT END EXISTS "
  + "EXPLAIN EXTENDED FALSE FILTER FINAL FROM FULL FUNCTION FUNCTIONS GRACE GRAPH GROUP HAVING HOPPING IF IN INNER INSERT INTO IS JOIN KEY LEFT LIKE "
  + "LIMIT LINEAGE LIST MAP NOT NULL ON OR ORDER OUTER OVER PARTITION PAUSE PERIOD PRIMARY PRINT PROPERTIES QUERIES RENAME REPLACE RESET RESUME RIGHT "
  + "SELECT SESSION SET SHOW SIZE STALL STREAM STREAMS STRUCT TABLE TABLES TERMINATE THEN TO TOPIC TOPICS TRUE TUMBLING TYPE UNION UNSET VALUES WHEN "
  + "WHERE WINDOW WITH WITHIN").split(" "));

/** @param {string} piece */
function kindOf(piece) {
  if (piece.startsWith("--") || piece.startsWith("/*")) return "comment";
  if (piece[0] === "'" || piece[0] === "$") return "text";
  if (/^\d/.test(piece)) return "number";
  return BOLD.has(piece.toUpperCase()) ? "keyword" : "";
}

/** @typedef {{ text: string, kind: string }} Candidate */

/** What a word may become: keywords by the server's parser, and the names that there are. */
export class Completion {
  /** @type {Promise<Candidate[]> | null} */
  #names = null;

  /** @param {string} before the text before the cursor @param {AbortSignal} signal @returns {Promise<{ word: string, candidates: Candidate[] }>} */
  async at(before, signal) {
    const word = /[A-Za-z_][\w.]*$/.exec(before)?.[0] ?? "";
    const last = word.slice(word.lastIndexOf(".") + 1);
    const head = before.slice(0, before.length - last.length);
    const [{ keywords }, names] = await Promise.all([api.post("v1/complete", { sql: head }, { signal, quiet: true }), this.names(signal)]);
    const all = [...(word.includes(".") ? [] : (keywords ?? []).map((/** @type {string} */ text) => ({ text, kind: "keyword" }))), ...names];
    const wanted = last.toUpperCase();
    const seen = new Set();
    const candidates = all.filter(({ text }) => text.toUpperCase().replaceAll("`", "").startsWith(wanted) && text.toUpperCase() !== wanted && !seen.has(text) && seen.add(text));
    return { word: last, candidates: candidates.slice(0, 40) };
  }

  /** Streams, tables, their columns, queries and functions. @param {AbortSignal} signal */
  names(signal) {
    this.#names ??= this.#asked(signal).catch(() => {
      this.#names = null;
      return [];
    });
    return this.#names;
  }

  forget() {
    this.#names = null;
  }

  /** @param {AbortSignal} signal @returns {Promise<Candidate[]>} */
  async #asked(signal) {
    const quiet = { signal, quiet: true };
    const [streams, tables, functions] = await Promise.all(["DESCRIBE STREAMS;", "DESCRIBE TABLES;", "SHOW FUNCTIONS;"].map(async (sql) => (await api.execute(sql, quiet))[0]));
    const sources = [...streams.sourceDescriptions, ...tables.sourceDescriptions];
    const columns = new Set(sources.flatMap((source) => source.fields.map((/** @type {any} */ field) => field.name)));
    return [
      ...sources.map((source) => ({ text: quoted(source.name).replaceAll(/^`([A-Z]+)`$/g, "$1"), kind: source.type.toLowerCase() })),
      ...[...columns].map((name) => ({ text: /^[A-Z_][A-Z0-9_]*$/.test(name) ? name : quoted(name), kind: "column" })),
      ...functions.functions.map((/** @type {any} */ each) => ({ text: each.name, kind: "function" })),
    ];
  }
}
