// Figures that many pages need: the series of /metrics, and rates between two looks at them.

import { api } from "./api.js";

/** @typedef {{ name: string, labels: Record<string, string>, value: number }} Sample */

/** The series of some families. @param {string[]} names @param {AbortSignal} signal @returns {Promise<Sample[]>} */
export async function samples(names, signal) {
  const wanted = names.map((name) => `name[]=${encodeURIComponent(name)}`).join("&");
  return parseSamples(await api.text(`metrics?${wanted}`, { signal }));
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** @param {string} text in Prometheus's format @returns {Sample[]} */
export function parseSamples(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const parts = line.startsWith("#") ? null : LINE.exec(line);
    if (parts === null) continue;
    /** @type {Record<string, string>} */
    const labels = {};
    for (const [, name, value] of (parts[2] ?? "").matchAll(LABEL)) {
      labels[name] = value.replace(/\\(.)/g, (_, char) => (char === "n" ? "\n" : char));
    }
    found.push({ name: parts[1], labels, value: Number(parts[3]) });
  }
  return found;
}

/** Per second, from counters that were seen before. After a restart counters begin again, and no rate is told. */
export class Rates {
  /** @type {Map<string, { value: number, at: number, rate: number | null }>} */
  #seen = new Map();

  /** @param {string} key @param {number} value @param {number} [now] in ms @returns {number | null} */
  take(key, value, now = performance.now()) {
    const before = this.#seen.get(key);
    let rate = before?.rate ?? null;
    if (before && now - before.at < 200) return rate;
    if (before) rate = value >= before.value ? ((value - before.value) * 1000) / (now - before.at) : null;
    this.#seen.set(key, { value, at: now, rate });
    return rate;
  }
}

/** @typedef {{ state: string, lag: number, rowsIn: number, rowsOut: number, rowsFailed: number, inRate: number | null, outRate: number | null }} QueryFigures */

const QUERY_FAMILIES = ["state", "lag", "rows_in", "rows_out", "rows_failed"].map((name) => `millstream_query_${name}`);

/** What all queries do, by their ids. @param {Rates} rates @param {AbortSignal} signal */
export async function queryFigures(rates, signal) {
  /** @type {Map<string, QueryFigures>} */
  const found = new Map();
  const now = performance.now();
  for (const { name, labels, value } of await samples(QUERY_FAMILIES, signal)) {
    const figures = found.get(labels.query)
      ?? { state: "", lag: 0, rowsIn: 0, rowsOut: 0, rowsFailed: 0, inRate: null, outRate: null };
    found.set(labels.query, figures);
    if (name === "millstream_query_state" && value === 1) figures.state = labels.state;
    else if (name === "millstream_query_lag") figures.lag += value;
    else if (name === "millstream_query_rows_failed_total") figures.rowsFailed = value;
    else if (name === "millstream_query_rows_in_total") {
      figures.rowsIn = value;
      figures.inRate = rates.take(`in ${labels.query}`, value, now);
    } else if (name === "millstream_query_rows_out_total") {
      figures.rowsOut = value;
      figures.outRate = rates.take(`out ${labels.query}`, value, now);
    }
  }
  return found;
}
