// The processing log: records that queries could not decode or compute, with the reason.

import { api, ServerError } from "../api.js";
import { fill, h } from "../dom.js";
import { grid } from "../grid.js";
import { cell, count, dialog, pieces, time } from "../text.js";
import { facts, link, panel, searchField } from "../view.js";

const TOPIC = "default_ksql_processing_log";
const SHOWN = 500;

/** @typedef {{ time: number, query: string, kind: string, message: string, topic: string, partition: number | null, offset: number | null, record: string | null }} Entry */

/** @param {import("../view.js").View} view */
export async function show(view) {
  const list = grid("Errors of records", [
    { name: "Time", width: "212px", value: (row) => row.time, draw: (row) => time(row.time) },
    { name: "Query", width: "minmax(190px, 1fr)", value: (row) => row.query, draw: (row) => link("queries", row.query) },
    { name: "Kind", width: "150px", value: (row) => row.kind },
    { name: "Error", width: "minmax(240px, 3fr)", value: (row) => row.message },
    { name: "Record", width: "minmax(140px, 1fr)", value: (row) => (row.topic ? `${row.topic}/${row.partition}@${row.offset}` : "") },
  ], { empty: "No record was left out: each could be decoded and computed.", onopen: open });
  list.classList.add("tall");
  const perQuery = h("div", {});
  const told = h("span", { class: "soft", role: "status" });
  let all = /** @type {Entry[]} */ ([]);
  let wanted = "";
  const draw = () => {
    list.rows = all.filter((row) => !wanted || `${row.query} ${row.message} ${row.topic}`.toLowerCase().includes(wanted));
    fill(told, `${count(list.rows.length)} of the newest ${count(all.length)}`);
  };
  view.root.append(h("div", { class: "bar" }, searchField("Search queries, errors, topics", (text) => {
    wanted = text;
    draw();
  }), told), perQuery, panel("Errors of records", list));
  await view.every(3000, async () => {
    const found = await api.get(`v1/topics/${TOPIC}/records?limit=${SHOWN}`, { signal: view.signal }).catch((error) => {
      if (error instanceof ServerError && /does not exist/.test(error.message)) return { records: [] }; // nothing was ever wrong
      throw error;
    });
    const entries = found.records.map(entryOf).reverse();
    if (JSON.stringify(entries) !== JSON.stringify(all)) {
      all = entries;
      draw();
    } else if (!all.length) draw();
    const counts = Map.groupBy(all, (entry) => entry.query);
    fill(perQuery, all.length ? h("p", {}, [...counts].map(([query, own]) => [link("queries", query), ` ${count(own.length)}  `]).flat()) : null);
  });
}

/** @param {any} record @returns {Entry} */
function entryOf(record) {
  try {
    const entry = JSON.parse(record.value);
    const { deserializationError: decode, recordProcessingError: compute } = entry.message;
    const error = decode ?? compute;
    const query = String(entry.logger).split(".").slice(1, -1).join(".");
    return { time: entry.time, query, kind: decode ? `decoding ${decode.target}` : "computing", message: String(error.errorMessage), topic: error.topic ?? "",
      partition: error.partition ?? null, offset: error.offset ?? null, record: decode ? fromBase64(decode.recordB64) : compute.record };
  } catch {
    return { time: record.timestamp, query: "", kind: "other", message: String(record.value), topic: "", partition: null, offset: null, record: null };
  }
}

/** @param {string | null} text */
function fromBase64(text) {
  if (text === null) return null;
  return new TextDecoder().decode(Uint8Array.from(atob(text), (char) => char.charCodeAt(0)));
}

/** @param {Entry} entry */
function open(entry) {
  dialog("A record that was left out", facts([
    ["Query", link("queries", entry.query)], ["Kind", entry.kind], ["Time", time(entry.time)],
    ["Record", entry.topic ? [link("topics", entry.topic), ` partition ${entry.partition}, offset ${entry.offset}`] : "–"],
  ]), h("h3", {}, "Error"), h("pre", { class: "text", tabindex: "0" }, pieces(entry.message, { lines: true })), h("h3", {}, "Record"), cell(entry.record, { max: 2000 }));
}
