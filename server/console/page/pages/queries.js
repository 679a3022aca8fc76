// Queries: what each does, and why nothing comes out of one.

import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { grid } from "../grid.js";
import { queryFigures, Rates } from "../metrics.js";
import { compact, count, pieces, quoted, rate, size, time } from "../text.js";
import { confirmStatement, facts, firstStep, link, links, panel, searchField, stateBadge, statementBox } from "../view.js";
import { GraphPicture } from "../graph-picture.js";

const FIRST_QUERY = "CREATE TABLE per_url AS\n  SELECT url, COUNT(*) AS n FROM clicks GROUP BY url;";

/** @param {import("../view.js").View} view @param {string} id */
export const show = (view, id) => (id ? showOne(view, id) : showAll(view));

/** @param {import("../view.js").View} view */
async function showAll(view) {
  const list = grid("Queries", [
    { name: "Query", width: "minmax(180px, 1.2fr)", value: (row) => row.id, draw: (row) => link("queries", row.id) },
    { name: "State", width: "130px", value: (row) => row.state, draw: (row) => stateBadge(row.state, row.detail) },
    { name: "Read", number: true, width: "100px", value: (row) => row.inRate, draw: (row) => rate(row.inRate) },
    { name: "Written", number: true, width: "100px", value: (row) => row.outRate, draw: (row) => rate(row.outRate) },
    { name: "Unread", number: true, width: "110px", value: (row) => row.lag, draw: (row) => compact(row.lag ?? 0) },
    { name: "Errors", number: true, width: "90px", value: (row) => row.rowsFailed, draw: (row) => compact(row.rowsFailed ?? 0) },
    { name: "Type", width: "120px", value: (row) => row.queryType },
    { name: "Executor", width: "100px", value: (row) => row.executor },
    { name: "Statement", width: "minmax(200px, 2.5fr)", value: (row) => row.queryString },
  ], {
    empty: firstStep("No query matches, or there is none yet. A query begins with CREATE … AS SELECT:", FIRST_QUERY),
    onopen: (row) => (location.hash = `#/queries/${encodeURIComponent(row.id)}`),
  });
  const states = h("select", { "aria-label": "State" }, ["all states", "RUNNING", "PAUSED", "ERROR"].map((state) => h("option", { value: state }, state)));
  const total = h("span", { class: "soft", role: "status" });
  let all = /** @type {any[]} */ ([]);
  let wanted = "";
  const draw = () => {
    const found = all.filter((row) => (!wanted || `${row.id} ${row.queryString}`.toLowerCase().includes(wanted)) && (states.selectedIndex === 0 || row.state === states.value));
    list.rows = found;
    fill(total, `${count(found.length)} of ${count(all.length)}`);
  };
  states.addEventListener("change", draw);
  view.root.append(h("div", { class: "bar" }, searchField("Search queries and statements", (text) => {
    wanted = text;
    draw();
  }), states, total), list);
  list.classList.add("tall");
  const rates = new Rates();
  await view.every(2000, async () => {
    const [shown, figures] = await Promise.all([api.one("SHOW QUERIES;", { signal: view.signal }), queryFigures(rates, view.signal)]);
    all = shown.queries.map((/** @type {any} */ query) => ({ ...figures.get(query.id), ...query }));
    draw();
  });
}

/** @param {import("../view.js").View} view @param {string} id */
async function showOne(view, id) {
  const head = h("div", { class: "bar" });
  const about = h("div", {});
  const stall = h("div", {});
  const operators = grid("Operators", [
    { name: "Step", width: "minmax(200px, 3fr)", value: (row) => row.description },
    { name: "In", number: true, width: "85px", value: (row) => row.rowsIn, draw: (row) => compact(row.rowsIn) },
    { name: "In/s", number: true, width: "80px", value: (row) => row.rowsInPerSecond, draw: (row) => rate(row.rowsInPerSecond) },
    { name: "Out", number: true, width: "85px", value: (row) => row.rowsOut, draw: (row) => compact(row.rowsOut) },
    { name: "Out/s", number: true, width: "80px", value: (row) => row.rowsOutPerSecond, draw: (row) => rate(row.rowsOutPerSecond) },
    { name: "Late", number: true, width: "65px", value: (row) => row.lateRows },
    { name: "State", number: true, width: "150px", value: (row) => row.stateRows, draw: (row) => (row.stateRows ? `${compact(row.stateRows)} rows, ${size(row.stateBytes ?? 0)}` : "–") },
    { name: "Busy", number: true, width: "90px", value: (row) => row.busyMs, draw: (row) => `${compact(row.busyMs)} ms` },
  ], { empty: "Counts come with the first batch of records. Spark's tasks keep none." });
  const partitions = grid("Partitions", [
    { name: "Topic", value: (row) => row.topic, draw: (row) => link("topics", row.topic) },
    { name: "Partition", number: true, value: (row) => row.partition },
    { name: "Position", number: true, value: (row) => row.position, draw: (row) => row.position === null ? "–" : count(row.position) },
    { name: "Unread", number: true, value: (row) => row.lag, draw: (row) => row.lag === null ? "–" : count(row.lag) },
    { name: "Largest rowtime", width: "210px", value: (row) => row.largestRowtime, draw: (row) => time(row.largestRowtime) },
    { name: "Last read", width: "210px", value: (row) => row.lastRead, draw: (row) => time(row.lastRead) },
  ], { empty: "Nothing was read yet." });
  const picture = new GraphPicture();
  const statement = h("div", {});
  const plan = h("div", {}, picture.node);
  const ofPersistent = [panel("Why nothing comes out", stall), panel("Operators", operators), panel("Partitions", partitions)];
  view.root.append(head, about, ...ofPersistent, panel("Plan", plan), panel("Statement", statement));
  /** @type {[string, string][]} */
  const actions = [["PAUSE", "The query stops reading. Its state and its position stay."], ["RESUME", "The query goes on where it stopped."], ["TERMINATE", "The query ends for good; what it has written stays."]];
  const buttons = actions.map(([verb, consequence]) => h("button", { type: "button", class: verb === "TERMINATE" ? "danger" : "", onclick: async () => {
    const ran = await confirmStatement(`${verb} ${id}`, `${verb} ${quoted(id)};`, consequence);
    if (ran && verb === "TERMINATE") location.hash = "#/queries";
    else if (ran) await look();
  } }, verb[0] + verb.slice(1).toLowerCase()));
  const state = h("span", { role: "status" });
  const around = h("a", { class: "button", href: `#/graph/${encodeURIComponent(id)}` }, "In the graph");
  head.append(state, ...buttons, around);

  const look = async () => {
    const { signal } = view;
    const { queryDescription: query } = await api.one(`EXPLAIN ${quoted(id)};`, { signal });
    const push = query.queryType === "PUSH"; // it only runs, or ends
    fill(state, stateBadge(query.state));
    buttons[0].disabled = push || query.state !== "RUNNING";
    buttons[1].disabled = query.state !== "PAUSED";
    fill(statement, statementBox(query.statementText));
    for (const each of [around, ...ofPersistent]) each.hidden = push;
    if (push) {
      fill(about, facts([["Reads", links("sources", query.sources)]]));
      fill(plan, h("pre", { class: "text", tabindex: "0" }, pieces(query.executionPlan, { lines: true })));
      return;
    }
    fill(about, facts([
      ["Reads", links("sources", query.sources)], ["Writes", links("sources", query.sinks)], ["Executor", query.executor ?? "–"],
      ["Read", count(query.metrics.rows_in ?? 0)], ["Written", count(query.metrics.rows_out ?? 0)],
      ["Dropped", count(query.metrics.rows_dropped ?? 0)], ["Errors", count(query.metrics.rows_failed ?? 0)],
      ["Batches", count(query.metrics.batches ?? 0)], ["Restarts", count(query.metrics.restarts ?? 0)],
    ]), query.queryErrors.map((/** @type {any} */ text) => h("div", { class: "error" }, pieces(typeof text === "string" ? text : JSON.stringify(text), { lines: true })))[0]);
    operators.rows = query.live?.operators ?? [];
    partitions.rows = query.live?.partitions ?? [];
    const [why, layout] = await Promise.all([
      api.one(`EXPLAIN STALL ${quoted(id)};`, { signal }), api.get(`graph?format=layout&of=${encodeURIComponent(id)}`, { signal }),
    ]);
    fill(stall, causes(why.causes));
    picture.show(layout);
  };
  await view.every(2000, look);
}

/** What EXPLAIN STALL says. @param {any[]} found */
export const causes = (found) => h("ul", { class: "causes" }, found.map((cause) =>
  h("li", { class: cause.blocks ? "blocks" : "tells" }, h("div", {}, pieces(cause.message, { lines: true })), cause.hint && h("p", { class: "hint" }, pieces(cause.hint, { lines: true })))));
