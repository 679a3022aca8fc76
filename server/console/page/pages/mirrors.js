// Mirrors: how far they are behind their sources, what holds them back, and statements that change them.

import { api, ServerError } from "../api.js";
import { fill, h } from "../dom.js";
import { grid } from "../grid.js";
import { cell, count, quoted, size } from "../text.js";
import { confirmStatement, facts, firstStep, link, panel, searchField, stateBadge } from "../view.js";

const FIRST_MIRROR = "CREATE MIRROR shop FROM 'broker1:9092,broker2:9092' TOPICS 'orders*', 'customers';";

/** @param {import("../view.js").View} view @param {string} name */
export const show = (view, name) => (name ? showOne(view, name) : showAll(view));

/** A state with the colour of what it means. @param {string} state */
const badge = (state) => (["FAILED", "DEGRADED"].includes(state) ? h("span", { class: "state error" }, state) : stateBadge(state));

/** @param {number | null} lag */
const behind = (lag) => (lag === null ? "unknown" : count(lag));

/** @param {import("../view.js").View} view */
async function showAll(view) {
  const list = grid("Mirrors", [
    { name: "Mirror", width: "minmax(160px, 1.2fr)", value: (row) => row.name, draw: (row) => link("mirrors", row.name) },
    { name: "State", width: "140px", value: (row) => row.state, draw: (row) => badge(row.state) },
    { name: "Mode", width: "110px", value: (row) => row.mode },
    { name: "Source", width: "minmax(180px, 1.4fr)", value: (row) => row.source },
    { name: "Partitions", number: true, width: "110px", value: (row) => row.partitions },
    { name: "Lag", number: true, width: "110px", value: (row) => row.lag ?? -1, draw: (row) => behind(row.lag) },
    { name: "Per second", number: true, width: "120px", value: (row) => row.bytesPerSecond, draw: (row) => size(row.bytesPerSecond) },
    { name: "Error", width: "minmax(220px, 3fr)", value: (row) => row.lastError ?? "" },
  ], {
    empty: firstStep("No mirror matches, or there is none yet. Mirrors copy topics of another log; docs/mirrors.md describes them.", FIRST_MIRROR),
    onopen: (row) => (location.hash = `#/mirrors/${encodeURIComponent(row.name)}`),
  });
  list.classList.add("tall");
  let all = /** @type {any[]} */ ([]);
  let wanted = "";
  const total = h("span", { class: "soft", role: "status" });
  const draw = () => {
    list.rows = all.filter((row) => !wanted || `${row.name} ${row.source} ${row.state}`.toLowerCase().includes(wanted));
    fill(total, `${count(list.rows.length)} of ${count(all.length)}`);
  };
  view.root.append(h("div", { class: "bar" }, searchField("Search mirrors, sources, states", (text) => {
    wanted = text;
    draw();
  }), total), list);
  await view.every(3000, async () => {
    all = (await api.one("SHOW MIRRORS;", { signal: view.signal })).mirrors;
    draw();
  });
}

/** @param {import("../view.js").View} view @param {string} name */
async function showOne(view, name) {
  const head = h("div", { class: "bar" });
  const about = h("div", {});
  const causes = h("div", {});
  const partitions = grid("Partitions", [
    { name: "Topic", width: "minmax(180px, 2fr)", value: (row) => row.topic, draw: (row) => link("topics", row.topic) },
    { name: "Partition", number: true, width: "100px", value: (row) => row.partition },
    { name: "State", width: "130px", value: (row) => row.phase },
    { name: "End here", number: true, width: "120px", value: (row) => row.endOffset, draw: (row) => count(row.endOffset) },
    { name: "Lag", number: true, width: "110px", value: (row) => row.lag ?? -1, draw: (row) => behind(row.lag) },
    { name: "Error", width: "minmax(220px, 3fr)", value: (row) => row.error ?? "" },
  ], { empty: "It has not found a partition yet." });
  const settings = h("div", {});
  view.root.append(head, about, panel("What holds it back", causes), panel("Partitions", partitions), panel("Settings", settings));
  /** @type {[string, string][]} */
  const actions = [
    ["PAUSE", "It stops copying. Its topics stay read-only."], ["RESUME", "It goes on where its copies end."],
    ["PROMOTE", "It copies what is left, and ends: its topics can be written here from then on."],
    ["DROP", "It ends; its topics stay, and can be written."],
  ];
  const state = h("span", { role: "status" });
  const buttons = actions.map(([verb, consequence]) => h("button", { type: "button", class: ["DROP", "PROMOTE"].includes(verb) ? "danger" : "", onclick: async () => {
    const ran = await confirmStatement(`${verb} ${name}`, `${verb} MIRROR ${quoted(name)};`, consequence);
    if (ran && verb === "DROP") location.hash = "#/mirrors";
    else if (ran) await look();
  } }, verb[0] + verb.slice(1).toLowerCase()));
  head.append(state, ...buttons);

  const look = async () => {
    const { signal } = view;
    const [found, stall] = await api.execute(`DESCRIBE MIRROR ${quoted(name)}; EXPLAIN STALL MIRROR ${quoted(name)};`, { signal }).catch((error) => {
      if (error instanceof ServerError && error.status === 400) return [null, null];
      throw error;
    });
    for (const button of buttons) button.disabled = found === null;
    if (found === null) {
      partitions.rows = [];
      fill(about, h("p", {}, "There is no such mirror (any more)."));
      return;
    }
    const { mirror } = found;
    fill(state, badge(mirror.state));
    fill(about, facts([["Mode", mirror.mode], ["Source", cell(mirror.source)], ["Topics", cell(mirror.topics.join(", "))], ["Lag", behind(mirror.lag)],
      ["Per second", size(mirror.bytesPerSecond)], ["Copied", `${count(found.records)} records, ${size(found.bytes)}`], ["Restarts", count(found.restarts)]]));
    fill(causes, h("ul", {}, stall.causes.map((/** @type {any} */ cause) => h("li", {}, cell(cause.message, { max: 2000 }), cause.hint ? h("p", { class: "soft" }, cell(cause.hint, { max: 2000 })) : null))));
    partitions.rows = found.partitions;
    fill(settings, table(Object.entries(found.config).sort().map(([key, value]) => [key, String(value)])));
  };
  await view.every(3000, look);
}

/** @param {string[][]} rows */
function table(rows) {
  if (!rows.length) return h("p", { class: "soft" }, "All settings are at their defaults.");
  return h("table", {}, h("thead", {}, h("tr", {}, ["Setting", "Value"].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, rows.map(([first, second]) => h("tr", {}, h("th", { scope: "row" }, cell(first)), h("td", {}, cell(second))))));
}
