// Streams and tables: columns, statement, who reads and who writes, and where each column comes from.

import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { grid } from "../grid.js";
import { cell, count, pieces, quoted } from "../text.js";
import { editorLink, facts, firstStep, link, links, panel, searchField, stateBadge, statementBox } from "../view.js";

const FIRST_STREAM = "CREATE STREAM clicks (user STRING KEY, url STRING, size INT)\n  WITH (kafka_topic='clicks', value_format='JSON', partitions=2);";

/** @param {import("../view.js").View} view @param {string} name */
export const show = (view, name) => (name ? showOne(view, name) : showAll(view));

/** @param {import("../view.js").View} view */
async function showAll(view) {
  const list = grid("Streams and tables", [
    { name: "Name", width: "minmax(180px, 1.4fr)", value: (row) => row.name, draw: (row) => link("sources", row.name) },
    { name: "Kind", width: "110px", value: (row) => row.type, draw: (row) => h("span", { class: `kind ${row.type.toLowerCase()}` }, row.type) },
    { name: "Topic", value: (row) => row.topic, draw: (row) => link("topics", row.topic) },
    { name: "Key format", width: "120px", value: (row) => row.keyFormat },
    { name: "Value format", width: "130px", value: (row) => row.valueFormat },
    { name: "Windowed", width: "110px", value: (row) => (row.isWindowed ? "yes" : "no") },
  ], {
    empty: firstStep("Nothing matches, or there are no streams and tables yet. The first step is to declare one over a topic:", FIRST_STREAM),
    onopen: (row) => (location.hash = `#/sources/${encodeURIComponent(row.name)}`),
  });
  list.classList.add("tall");
  const kinds = h("select", { "aria-label": "Kind" }, ["streams and tables", "STREAM", "TABLE"].map((kind) => h("option", { value: kind }, kind.toLowerCase())));
  const total = h("span", { class: "soft", role: "status" });
  let all = /** @type {any[]} */ ([]);
  let wanted = "";
  const draw = () => {
    const found = all.filter((row) => (!wanted || `${row.name} ${row.topic}`.toLowerCase().includes(wanted)) && (kinds.selectedIndex === 0 || row.type === kinds.value));
    list.rows = found;
    fill(total, `${count(found.length)} of ${count(all.length)}`);
  };
  kinds.addEventListener("change", draw);
  view.root.append(h("div", { class: "bar" }, searchField("Search names and topics", (text) => {
    wanted = text;
    draw();
  }), kinds, total, h("a", { class: "button", href: editorLink(FIRST_STREAM) }, "New …")), list);
  await view.every(5000, async () => {
    const [streams, tables] = await Promise.all([api.one("SHOW STREAMS;", { signal: view.signal }), api.one("SHOW TABLES;", { signal: view.signal })]);
    all = [...streams.streams, ...tables.tables].sort((a, b) => (a.name < b.name ? -1 : 1));
    draw();
  });
}

/** @param {import("../view.js").View} view @param {string} name */
async function showOne(view, name) {
  const written = quoted(name);
  const about = h("div", {});
  const columns = grid("Columns", [
    { name: "Column", value: (row) => row.name },
    { name: "Type", width: "minmax(160px, 2fr)", value: (row) => typeText(row.schema) },
    { name: "Role", width: "140px", value: (row) => row.type ?? "", draw: (row) => row.type ? row.type.toLowerCase() + (row.headerKey ? ` ${row.headerKey}` : "") : "" },
  ]);
  const lineage = grid("Where columns come from", [
    { name: "Column", value: (row) => row.output },
    { name: "Comes from", value: (row) => row.input },
    { name: "How", width: "210px", value: (row) => `${row.type} ${row.subtype}`.toLowerCase().replaceAll("_", " ") },
    { name: "Through", width: "minmax(160px, 2fr)", value: (row) => row.description },
    { name: "Query", value: (row) => row.queryId, draw: (row) => (row.queryId ? link("queries", row.queryId) : "–") },
  ], { empty: "No query writes it: its columns come from its topic." });
  const writers = h("div", {});
  const readers = h("div", {});
  const statement = h("div", {});
  view.root.append(
    h("div", { class: "bar" },
      h("a", { class: "button primary", href: editorLink(`SELECT * FROM ${written} EMIT CHANGES;`) }, "Watch live"),
      h("a", { class: "button", href: editorLink(`SELECT * FROM ${written} LIMIT 100;`) }, "Current rows"),
      h("a", { class: "button", href: `#/graph/${encodeURIComponent(name)}` }, "In the graph")),
    about, panel("Columns", columns), h("div", { class: "two" }, panel("Written by", writers), panel("Read by", readers)),
    panel("Statement", statement), panel("Where columns come from", lineage));
  await view.every(5000, async () => {
    const { signal } = view;
    const [{ sourceDescription: source }, { lineage: edges }] = await Promise.all([
      api.one(`DESCRIBE ${written} EXTENDED;`, { signal }), api.one(`SHOW LINEAGE OF ${written};`, { signal }),
    ]);
    fill(about, facts([
      ["Kind", h("span", { class: `kind ${source.type.toLowerCase()}` }, source.type)], ["Topic", link("topics", source.topic)],
      ["Partitions", count(source.partitions)], ["Formats", `key ${source.keyFormat}, value ${source.valueFormat}`],
      ["Window", source.windowType ?? "none"], ["Built from", source.sourceConstraints.length ? links("sources", source.sourceConstraints) : "–"],
    ]), source.statistics ? h("p", { class: "soft" }, pieces(source.statistics, { lines: true })) : null);
    if (columns.rows.length !== source.fields.length) columns.rows = source.fields;
    if (lineage.rows.length !== edges.length) lineage.rows = edges;
    fill(writers, queryList(source.writeQueries, "No query: producers and INSERT write it."));
    fill(readers, queryList(source.readQueries, "No query reads it yet."));
    fill(statement, source.statement ? statementBox(source.statement) : h("p", { class: "soft" }, "You may not see the query that writes it."));
  });
}

/** @param {any[]} queries @param {string} none */
const queryList = (queries, none) => queries.length === 0 ? h("p", { class: "soft" }, none)
  : h("ul", { class: "plain" }, queries.map((query) => h("li", {}, link("queries", query.id), " ", stateBadge(query.state, query.detail), " ", cell(query.queryString.replaceAll(/\s+/g, " "), { max: 300 }))));

/** A type as SQL. @param {any} schema @returns {string} */
export function typeText(schema) {
  const inner = schema.memberSchema ? typeText(schema.memberSchema) : "";
  if (schema.type === "ARRAY") return `ARRAY<${inner}>`;
  if (schema.type === "MAP") return `MAP<STRING, ${inner}>`;
  if (schema.type === "STRUCT") return `STRUCT<${(schema.fields ?? []).map((/** @type {any} */ field) => `${field.name} ${typeText(field.schema)}`).join(", ")}>`;
  const { precision, scale } = schema.parameters ?? {};
  return precision === undefined ? schema.type : `${schema.type}(${precision}, ${scale})`;
}
