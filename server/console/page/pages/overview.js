// What runs, what is wrong, and why.

import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { grid } from "../grid.js";
import { queryFigures, Rates, samples } from "../metrics.js";
import { count, pieces, quoted, rate } from "../text.js";
import { facts, firstStep, link, panel, stateBadge } from "../view.js";
import { Spark } from "../spark.js";

const EXPLAINED_MAX = 20; // queries that are asked why nothing comes, at each look
const FIRST_STREAM = "CREATE STREAM clicks (user STRING KEY, url STRING, size INT)\n  WITH (kafka_topic='clicks', value_format='JSON', partitions=2);";

/** @param {import("../view.js").View} view */
export async function show(view) {
  const cards = h("div", { class: "cards" });
  const spark = new Spark(["read", "written"]);
  const troubles = grid("Queries in trouble", [
    { name: "Query", width: "minmax(180px, 0.7fr)", value: (row) => row.id, draw: (row) => link("queries", row.id) },
    { name: "State", width: "130px", value: (row) => row.state, draw: (row) => stateBadge(row.state, row.detail) },
    { name: "Why", width: "minmax(300px, 3fr)", value: (row) => row.why, draw: (row) => h("span", { title: row.hint }, pieces(row.why)) },
  ], { empty: "Nothing is wrong: each query runs, and none is held back.", onopen: (row) => (location.hash = `#/queries/${encodeURIComponent(row.id)}`) });
  const first = h("div", {});
  const about = h("div", {});
  const wrong = panel("What is wrong, and why", troubles);
  view.root.append(first, cards, panel("Records per second, all queries", spark.node), wrong, panel("This server", about));
  const rates = new Rates();

  await view.every(2500, async () => {
    const { signal } = view;
    const [{ KsqlServerInfo: info }, queries, figures, counts] = await Promise.all([
      api.get("info", { signal }), api.one("SHOW QUERIES;", { signal }), queryFigures(rates, signal),
      samples(["millstream_sources", "millstream_client_queries"], signal),
    ]);
    const sources = Object.fromEntries(counts.filter(({ name }) => name === "millstream_sources").map(({ labels, value }) => [labels.kind, value]));
    const clients = Object.fromEntries(counts.filter(({ name }) => name === "millstream_client_queries").map(({ labels, value }) => [labels.kind, value]));
    const all = [...figures.values()];
    const persistent = queries.queries.filter((/** @type {any} */ query) => query.queryType === "PERSISTENT");
    const failed = persistent.filter((/** @type {any} */ query) => query.state === "ERROR").length;
    const lag = all.reduce((sum, each) => sum + each.lag, 0);
    const inRate = sumOf(all.map((each) => each.inRate));
    const outRate = sumOf(all.map((each) => each.outRate));
    fill(cards,
      card("Queries", count(persistent.length), failed ? `${failed} failed` : "none failed", "queries", failed > 0),
      card("Streams", count(sources.stream ?? 0), "", "sources"), card("Tables", count(sources.table ?? 0), "", "sources"),
      card("Read", rate(inRate), "", "queries"), card("Written", rate(outRate), "", "queries"),
      card("Unread records", count(lag), lag ? "of all queries" : "all is read", "queries", false),
      card("Clients' queries", count((clients.push ?? 0) + (clients.pull ?? 0)), `${clients.push ?? 0} push, ${clients.pull ?? 0} pull`, "editor"));
    if (inRate !== null) spark.add([inRate, outRate ?? 0]);
    fill(first, (sources.stream ?? 0) + (sources.table ?? 0) === 0
      && firstStep("There are no streams yet. The first step is to declare one over a topic:", FIRST_STREAM));
    fill(about, facts([
      ["Version", info.millstreamVersion], ["State", info.serverStatus], ["Service", info.ksqlServiceId], ["Log", info.kafkaClusterId],
    ]));
    troubles.rows = await troublesOf(persistent, figures, signal);
  });
}

/** @param {string} name @param {string} value @param {string} note @param {string} page @param {boolean} [bad] */
const card = (name, value, note, page, bad = false) =>
  h("a", { class: bad ? "card bad" : "card", href: `#/${page}` }, h("span", { class: "card-name" }, name), h("strong", {}, value), h("small", {}, note));

/** @param {(number | null)[]} values @returns {number | null} */
const sumOf = (values) => (values.some((value) => value !== null) ? values.reduce((/** @type {number} */ sum, value) => sum + (value ?? 0), 0) : null);

/** Those that do not run, and those that have something to read and write nothing, with the first reason.
 * @param {any[]} queries @param {Map<string, import("../metrics.js").QueryFigures>} figures @param {AbortSignal} signal */
async function troublesOf(queries, figures, signal) {
  const suspects = queries.filter(({ id, state }) => {
    const seen = figures.get(id);
    return state !== "RUNNING" || (seen !== undefined && (seen.rowsOut === 0 || seen.lag > 0 || seen.rowsFailed > 0));
  });
  const weight = (/** @type {any} */ query) => (query.state === "ERROR" ? 0 : query.state === "RUNNING" ? 2 : 1);
  suspects.sort((a, b) => weight(a) - weight(b));
  const asked = suspects.slice(0, EXPLAINED_MAX);
  if (!asked.length) return [];
  const stalls = await Promise.all(asked.map(({ id }) => api.one(`EXPLAIN STALL ${quoted(id)};`, { signal }).catch(() => null)));
  const found = stalls.flatMap((stall) => {
    const cause = stall?.causes.find((/** @type {any} */ each) => each.blocks || each.code === "RECORD_ERRORS");
    return cause ? [{ id: stall.queryId, state: stall.state, why: cause.message, hint: cause.hint }] : [];
  });
  const left = suspects.slice(EXPLAINED_MAX).filter(({ state }) => state !== "RUNNING");
  return [...found, ...left.map(({ id, state }) => ({ id, state, why: "See the query.", hint: "" }))];
}
