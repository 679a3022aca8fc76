// Connectors: what they do, their tasks and errors, their settings without secrets.

import { api, ServerError } from "../api.js";
import { fill, h } from "../dom.js";
import { grid } from "../grid.js";
import { cell, count, dialog, pieces, quoted } from "../text.js";
import { confirmStatement, facts, firstStep, link, panel, searchField, stateBadge, statementBox } from "../view.js";

const FIRST_CONNECTOR = "CREATE SOURCE CONNECTOR orders WITH (\n  'connector.class'='datagen', 'quickstart'='orders', 'kafka.topic'='orders');";

/** @param {import("../view.js").View} view @param {string} name */
export const show = (view, name) => (name ? showOne(view, name) : showAll(view));

/** @typedef {{ name: string, type: string, state: string, class: string, tasks: any[], failed: number, trouble: string }} Row */

/** @param {any} status @param {any} info @returns {Row} */
function rowOf(status, info) {
  const failed = status.tasks.filter((/** @type {any} */ task) => task.state === "FAILED");
  return { name: status.name, type: status.type, state: failed.length ? "FAILED" : status.connector.state, class: info.config["connector.class"] ?? "",
    tasks: status.tasks, failed: failed.length, trouble: String(failed[0]?.trace ?? status.connector.trace ?? "") };
}

/** A state with the colour of what it means. @param {string} state */
const badge = (state) => (state === "FAILED" ? h("span", { class: "state error" }, "FAILED") : stateBadge(state));

/** @param {import("../view.js").View} view */
async function showAll(view) {
  const list = grid("Connectors", [
    { name: "Connector", width: "minmax(180px, 1.4fr)", value: (row) => row.name, draw: (row) => link("connectors", row.name) },
    { name: "Type", width: "110px", value: (row) => row.type },
    { name: "State", width: "140px", value: (row) => row.state, draw: (row) => badge(row.state) },
    { name: "Class", width: "minmax(160px, 1fr)", value: (row) => row.class },
    { name: "Tasks", number: true, width: "90px", value: (row) => row.tasks.length },
    { name: "Error", width: "minmax(220px, 3fr)", value: (row) => row.trouble },
  ], {
    empty: firstStep("No connector matches, or there is none yet. Connectors bring data in and out; docs/connectors.md names them.", FIRST_CONNECTOR),
    onopen: (row) => (location.hash = `#/connectors/${encodeURIComponent(row.name)}`),
  });
  list.classList.add("tall");
  let all = /** @type {Row[]} */ ([]);
  let wanted = "";
  const total = h("span", { class: "soft", role: "status" });
  const draw = () => {
    list.rows = all.filter((row) => !wanted || `${row.name} ${row.class} ${row.state}`.toLowerCase().includes(wanted));
    fill(total, `${count(list.rows.length)} of ${count(all.length)}`);
  };
  view.root.append(h("div", { class: "bar" }, searchField("Search connectors, classes, states", (text) => {
    wanted = text;
    draw();
  }), total), list);
  await view.every(3000, async () => {
    const found = await api.get("connectors?expand=status&expand=info", { signal: view.signal });
    all = Object.values(found).map(({ status, info }) => rowOf(status, info)).sort((a, b) => (a.name < b.name ? -1 : 1));
    draw();
  });
}

/** @param {import("../view.js").View} view @param {string} name */
async function showOne(view, name) {
  const head = h("div", { class: "bar" });
  const about = h("div", {});
  const tasks = grid("Tasks", [
    { name: "Task", number: true, width: "80px", value: (row) => row.id },
    { name: "State", width: "140px", value: (row) => row.state, draw: (row) => badge(row.state) },
    { name: "Server", width: "minmax(140px, 1fr)", value: (row) => row.worker_id },
    { name: "Error", width: "minmax(240px, 4fr)", value: (row) => row.trace ?? "" },
  ], { empty: "It has no task.", onopen: (row) => row.trace && dialog(`Task ${row.id}`, h("pre", { class: "text", tabindex: "0" }, pieces(row.trace, { lines: true }))) });
  const settings = h("div", {});
  const offsets = h("div", {});
  view.root.append(head, about, panel("Tasks", tasks), panel("Positions", offsets), panel("Settings", settings));
  /** @type {[string, string][]} */
  const actions = [
    ["PAUSE", "Its tasks stop. Their positions stay."], ["RESUME", "Its tasks go on where they stopped."],
    ["RESTART", "Its tasks are started again, at their positions."], ["DROP", "It ends for good; records that it has written stay."],
  ];
  const state = h("span", { role: "status" });
  const buttons = actions.map(([verb, consequence]) => h("button", { type: "button", class: verb === "DROP" ? "danger" : "", onclick: async () => {
    const ran = await confirmStatement(`${verb} ${name}`, `${verb} CONNECTOR ${quoted(name)};`, consequence);
    if (ran && verb === "DROP") location.hash = "#/connectors";
    else if (ran) await look();
  } }, verb[0] + verb.slice(1).toLowerCase()));
  head.append(state, ...buttons);

  const look = async () => {
    const path = `connectors/${encodeURIComponent(name)}`;
    const { signal } = view;
    const [status, info, topics, places] = await Promise.all(
      [`${path}/status`, path, `${path}/topics`, `${path}/offsets`].map((each) => api.get(each, { signal }))).catch((error) => {
      if (error instanceof ServerError && error.status === 404) return [null, null, null, null];
      throw error;
    });
    for (const button of buttons) button.disabled = status === null;
    if (status === null) {
      tasks.rows = [];
      fill(about, h("p", {}, "There is no such connector (any more)."));
      return;
    }
    const row = rowOf(status, info);
    const named = /** @type {string[]} */ (Object.values(topics)[0]?.topics ?? []);
    fill(state, badge(row.state));
    fill(about, facts([["Type", row.type], ["Class", cell(row.class)],
      ["Topics", named.length ? named.flatMap((each, at) => [at > 0 && ", ", link("topics", each)]) : "–"]]));
    tasks.rows = status.tasks;
    fill(offsets, places.offsets.length ? table(["Of", "Position"], places.offsets.map((/** @type {any} */ place) => [said(place.partition), said(place.offset)])) : h("p", { class: "soft" }, "It has no position yet."));
    fill(settings, table(["Setting", "Value"], Object.entries(info.config).sort().map(([key, value]) => [key, String(value)])),
      h("p", { class: "soft" }, "Secrets are hidden. A setting is changed by"), statementBox(`ALTER CONNECTOR ${quoted(name)} ('tasks.max'='1');`));
  };
  await view.every(3000, look);
}

/** @param {string[]} titles @param {string[][]} rows */
function table(titles, rows) {
  return h("table", {}, h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, rows.map(([first, second]) => h("tr", {}, h("th", { scope: "row" }, cell(first)), h("td", {}, cell(second))))));
}

/** @param {any} value */
const said = (value) => (typeof value === "object" && value !== null ? Object.entries(value).map(([key, each]) => `${key} ${typeof each === "object" ? JSON.stringify(each) : each}`).join(", ") : String(value));
