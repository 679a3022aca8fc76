// The editor: statements in, answers and live rows out.

import { api, isAway, readMessage, ServerError, Unreachable } from "../api.js";
import { chooseAxes, drawnAxes, SERIES_MAX, seriesOf } from "../chart-data.js";
import { atMostEvery, h, setText } from "../dom.js";
import { grid } from "../grid.js";
import chart from "../live/chart.js";
import { LiveRows } from "../live-rows.js";
import { SqlInput } from "../sql-input.js";
import { givesRows, statements } from "../sql-text.js";
import { count, pieces, prettyJson, rate, visible } from "../text.js";
import { errorBox } from "../view.js";
import { causes } from "./queries.js";

const REDRAW_MS = 100; // at most ten redraws a second, however many rows come
const KEEP = [1000, 100, 10_000];
const KEPT_STATEMENTS = 50;

/** The text stays while the reader looks at other pages. */
let draft = "SHOW STREAMS;";
/** @type {string[]} */
const earlier = [];

/** @param {import("../view.js").View} view @param {string} _ @param {URLSearchParams} parameters */
export function show(view, _, parameters) {
  if (parameters.has("sql")) draft = parameters.get("sql") ?? "";
  const answers = h("div", { class: "answers" });
  const run = () => runAll();
  const input = new SqlInput(view.signal, run);
  input.value = draft;
  input.field.addEventListener("input", () => (draft = input.value));
  const offset = h("select", { "aria-label": "Where push queries begin" }, h("option", { value: "earliest" }, "from the beginning"), h("option", { value: "latest" }, "from now on"));
  const keep = h("select", { "aria-label": "Rows to keep" }, KEEP.map((most) => h("option", { value: most }, `keep ${count(most)} rows`)));
  const history = h("select", { "aria-label": "Earlier statements" });
  const drawHistory = () => {
    history.replaceChildren(h("option", { value: "" }, earlier.length ? "Earlier statements …" : "No earlier statements"), ...earlier.map((sql, at) => h("option", { value: at }, visible(sql.slice(0, 90)))));
    history.disabled = earlier.length === 0;
  };
  history.addEventListener("change", () => {
    if (history.value !== "") input.value = draft = earlier[Number(history.value)];
    input.field.focus();
    history.value = "";
  });
  const button = h("button", { type: "button", class: "primary", onclick: run }, "Run ", h("kbd", {}, "Ctrl ⏎"));
  view.root.append(input.node, h("div", { class: "bar" }, button, offset, keep, history, h("span", { class: "soft" }, h("kbd", {}, "Ctrl Space"), " completes")), answers);
  drawHistory();
  /** @type {AbortController | null} */
  let running = null;
  view.signal.addEventListener("abort", () => running?.abort());

  async function runAll() {
    running?.abort();
    const mine = (running = new AbortController());
    const { text, start } = input.selected;
    const found = statements(text);
    answers.replaceChildren();
    if (found.length === 0) return void answers.append(h("p", { class: "soft" }, "There is no statement. Write one, for example SHOW STREAMS;"));
    if (earlier[0] !== text) earlier.unshift(text);
    earlier.splice(KEPT_STATEMENTS);
    drawHistory();
    const properties = { "auto.offset.reset": offset.value };
    for (const statement of found) {
      if (mine.signal.aborted) return;
      const place = h("section", { class: "answer", "aria-label": "Answer" });
      answers.append(place);
      try {
        if (givesRows(statement.text)) await new LiveAnswer(place, statement.text, Number(keep.value), mine, view.signal).run(properties);
        else for (const entity of await api.execute(statement.text, { properties, signal: mine.signal })) place.append(entityNode(entity));
      } catch (error) {
        if (mine.signal.aborted) return;
        place.replaceChildren(errorBox(error));
        if (error instanceof ServerError && error.place) input.mark(offsetOf(statement.text, error.place) + statement.start + start, error.place.length);
        return;
      }
      input.refresh();
    }
  }
  if (!parameters.has("sql")) input.field.focus();
  else button.focus();
}

/** @param {string} text @param {{ line: number, column: number }} place */
function offsetOf(text, { line, column }) {
  return text.split("\n").slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + column - 1;
}

/** A running SELECT or PRINT: its rows as a table and as a chart, with a button that ends it. */
class LiveAnswer {
  #rows;
  #ended = new AbortController();
  #state = h("span", { class: "live-state", role: "status" }, "starting …");
  #figures = h("span", { class: "soft" });
  #stop = h("button", { type: "button", class: "danger", onclick: () => this.#ended.abort() }, "Stop");
  #tabs = h("div", { class: "tabs", role: "group", "aria-label": "Show as" });
  #errors = h("div", {});
  #table = grid("Rows", [], { empty: "No rows yet." });
  #plot = h("div", { class: "plot", hidden: true });
  #draw = atMostEvery(REDRAW_MS, () => this.#drawn());
  /** @type {ReturnType<typeof chartModel> | null} */
  #chart = null;
  /** @type {{ at: number, received: number }[]} */
  #seen = [];
  /** Whether it is a push query that has begun. */
  #started = false;

  /** @param {HTMLElement} place @param {string} sql @param {number} keep @param {AbortController} running @param {AbortSignal} left */
  constructor(place, sql, keep, running, left) {
    this.#rows = new LiveRows(keep);
    this.sql = sql;
    this.#table.rows = [];
    for (const signal of [running.signal, left]) signal.addEventListener("abort", () => this.#ended.abort());
    this.#table.classList.add("live");
    place.append(h("div", { class: "bar" }, this.#state, this.#figures, this.#tabs, this.#stop), this.#errors, this.#table, this.#plot);
  }

  /** Until the query ends, or somebody ends it. If the server goes in the middle of a push query, it is asked again as
   * soon as it answers. @param {Record<string, string>} properties */
  async run(properties) {
    const { signal } = this.#ended;
    try {
      while (await this.#lost(properties)) {
        this.#state.classList.remove("on");
        setText(this.#state, "reconnecting …");
        await api.back(signal);
        if (signal.aborted) break;
        this.#rows = new LiveRows(this.#rows.most);
      }
      this.#end(signal.aborted ? "stopped" : this.#rows.error ? "failed" : "ended");
    } catch (error) {
      this.#end(signal.aborted ? "stopped" : "failed");
      if (!signal.aborted) throw error;
    }
    if (this.#rows.error) this.#errors.replaceChildren(errorBox(new ServerError(this.#rows.error.message, this.#rows.error.error_code)));
  }

  /** Whether the server went before the rows of a push query were complete. @param {Record<string, string>} properties */
  async #lost(properties) {
    const { signal } = this.#ended;
    try {
      for await (const lines of api.lines(this.sql, { properties, signal })) {
        const first = this.#rows.header === null;
        this.#rows.take(lines);
        if (first && this.#rows.header) this.#begin();
        this.#draw();
      }
    } catch (error) {
      const away = error instanceof Unreachable || (error instanceof ServerError && isAway(error.code));
      if (signal.aborted || !this.#started || !away) throw error;
      return true;
    }
    const { error, complete, finalMessage, header } = this.#rows;
    if (header?.kind !== "PUSH" || finalMessage) return false; // "Limit Reached"
    // A server that stops ends its queries as whoever closes one does: what differs is whether it takes statements.
    return error ? isAway(error.error_code) : !complete || !(await api.ping());
  }

  #begin() {
    const header = /** @type {import("../live-rows.js").Header} */ (this.#rows.header);
    const isNumber = (/** @type {number} */ at) => /^(INTEGER|BIGINT|DOUBLE|DECIMAL)/.test(header.columnTypes[at]);
    this.#table.columns = header.columnNames.map((name, at) => ({
      name, type: header.columnTypes[at] + (header.keyColumns?.includes(at) ? " key" : ""), number: isNumber(at), value: (/** @type {any} */ row) => row.values[at],
    }));
    this.#state.textContent = header.kind === "PULL" ? "reading" : "live";
    this.#state.classList.add("on");
    if (this.#started) return; // after a reconnection all is where it was
    this.#started = header.kind === "PUSH";
    const axes = chooseAxes(header);
    if (axes === null) return;
    const buttons = ["Table", "Chart"].map((name, at) => h("button", { type: "button", "aria-pressed": String(at === 0), onclick: () => {
      buttons.forEach((button, each) => button.setAttribute("aria-pressed", String(each === at)));
      this.#table.hidden = at === 1;
      this.#plot.hidden = at === 0;
      this.#chart ??= at === 1 ? chartModel(this.#plot, axes, () => this.#ended.abort()) : null;
      this.#drawn();
    } }, name));
    this.#tabs.replaceChildren(...buttons);
  }

  #drawn() {
    const rows = this.#rows.rows();
    if (this.#plot.hidden) this.#table.rows = rows;
    else this.#chart?.update(rows, this.#status());
    const { received, keyed, deleted } = this.#rows;
    const kept = received > rows.length ? `, ${count(rows.length)} ${keyed ? "kept, one of each key" : "kept, the newest"}` : "";
    setText(this.#figures, `${count(received)} ${received === 1 ? "row" : "rows"}${kept}${deleted ? `, ${count(deleted)} deleted` : ""}${this.#running ? ` · ${rate(this.#rate())}` : ""}`);
  }

  get #running() {
    return !this.#stop.hidden;
  }

  /** Rows per second over the last three seconds. */
  #rate() {
    const now = performance.now();
    this.#seen.push({ at: now, received: this.#rows.received });
    while (this.#seen.length > 1 && (this.#seen[0].at < now - 3000 || this.#seen[0].received > this.#rows.received)) this.#seen.shift();
    const { at, received } = this.#seen[0];
    return now - at < 300 ? null : ((this.#rows.received - received) * 1000) / (now - at);
  }

  #status() {
    const state = this.#running ? "running" : this.#state.textContent ?? "ended";
    return { state, received: this.#rows.received, rate: Math.round(this.#rate() ?? 0), message: "" };
  }

  /** @param {string} how */
  #end(how) {
    this.#stop.hidden = true;
    this.#state.classList.remove("on");
    this.#state.classList.toggle("bad", how === "failed");
    this.#table.empty = "No rows.";
    setText(this.#state, how);
    this.#drawn();
    if (this.#rows.finalMessage) this.#figures.append(` · ${this.#rows.finalMessage}`);
  }
}

/** The notebooks' chart with a model of its own. @param {HTMLElement} place @param {import("../chart-data.js").Axes} axes @param {() => void} stop */
function chartModel(place, axes, stop) {
  /** @type {Record<string, any>} */
  const state = { _axes: drawnAxes(axes), _series: [], _left_out: 0, _status: { state: "running", received: 0, rate: 0, message: "" } };
  /** @type {Map<string, (() => void)[]>} */
  const listeners = new Map();
  const model = {
    get: (/** @type {string} */ name) => state[name],
    on: (/** @type {string} */ event, /** @type {() => void} */ call) => listeners.set(event, [...(listeners.get(event) ?? []), call]),
    off: () => listeners.clear(),
    send: (/** @type {any} */ message) => message.kind === "stop" && stop(),
  };
  chart.render({ model, el: place });
  return {
    /** @param {import("../live-rows.js").Kept[]} rows @param {any} status */
    update(rows, status) {
      const series = seriesOf(axes, rows);
      Object.assign(state, { _series: series.slice(0, SERIES_MAX), _left_out: Math.max(0, series.length - SERIES_MAX), _status: status });
      for (const call of listeners.get("change:_series") ?? []) call();
    },
  };
}

// ---------------------------------------------------------------- answers of statements

/** The answer of a statement: a message, a table, causes, or JSON. @param {any} entity */
function entityNode(entity) {
  const { "@type": type, statementText, warnings = [], ...rest } = entity;
  const told = warnings.map((/** @type {any} */ warning) => h("p", { class: "warning" }, pieces(warning.message, { lines: true })));
  return h("div", { class: "entity" }, h("p", { class: "soft" }, pieces(short(statementText ?? ""))), told, entityContent(type, rest));
}

/** @param {string} sql */
const short = (sql) => (sql.length > 160 ? `${sql.slice(0, 159)}…` : sql);

/** @param {string} type @param {any} rest */
function entityContent(type, rest) {
  if (type === "currentStatus") return message(rest.commandStatus.message, rest.commandStatus.status !== "ERROR");
  if (type === "query_stall" || type === "connector_stall") return causes(rest.causes);
  if (type === "queryDescription") return h("pre", { class: "text", tabindex: "0" }, pieces(rest.queryDescription.executionPlan, { lines: true }));
  if (type === "graph") return h("pre", { class: "text", tabindex: "0" }, pieces(rest.text, { lines: true }));
  if (typeof rest.message === "string") return message(rest.message, true);
  const list = Object.values(rest).find((value) => Array.isArray(value) && value.every((each) => typeof each === "object" && each !== null));
  if (list) return listNode(/** @type {any[]} */ (list));
  return h("pre", { class: "text", tabindex: "0" }, pieces(prettyJson(JSON.stringify(rest)), { lines: true }));
}

/** @param {any[]} list */
function listNode(list) {
  const names = Object.keys(list[0] ?? {});
  const node = grid("Answer", names.map((name) => ({ name, number: list.every((row) => typeof row[name] === "number"), value: (/** @type {any} */ row) => row[name] })), { empty: "None." });
  node.rows = list;
  node.classList.add("short");
  return node;
}

/** @param {string} text @param {boolean} good */
function message(text, good) {
  const { message: fact, hint } = readMessage(text);
  return h("p", { class: good ? "done" : "error" }, pieces(fact, { lines: true }), hint && h("span", { class: "hint" }, ` ${hint}`));
}
