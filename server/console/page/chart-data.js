// What a chart shows of rows: the likeliest axes, and the rows as series of points. As in notebooks.

const NUMBERS = /^(INTEGER|INT|BIGINT|DOUBLE|DECIMAL)/;
const TIMES = ["WINDOWSTART", "ROWTIME", "WINDOWEND"]; // BIGINTs that are milliseconds
const WINDOW = ["WINDOWSTART", "WINDOWEND"];
export const SERIES_MAX = 12;

/** @typedef {{ kind: "line" | "bar", scale: "time" | "category", x: number | null, y: number[], by: number | null, names: string[] }} Axes */

/** The axes, or null where there is no column of numbers. @param {import("./live-rows.js").Header} header @returns {Axes | null} */
export function chooseAxes(header) {
  const { columnNames: names, columnTypes: types } = header;
  const key = header.keyColumns ?? [];
  const windowed = names.indexOf("WINDOWSTART");
  const timed = types.findIndex((type) => type === "TIMESTAMP");
  const x = windowed >= 0 ? windowed : timed >= 0 ? timed : key.length === 1 ? key[0] : null;
  const scale = x === null || TIMES.includes(names[x]) || types[x] === "TIMESTAMP" ? "time" : "category";
  const by = key.find((at) => at !== x && !WINDOW.includes(names[at])) ?? null;
  const y = names.map((_, at) => at).filter((at) => NUMBERS.test(types[at]) && at !== x && at !== by && !key.includes(at) && !TIMES.includes(names[at]));
  return y.length === 0 ? null : { kind: scale === "category" ? "bar" : "line", scale, x, y, by, names };
}

/** What the chart's axes are called. @param {Axes} axes */
export const drawnAxes = (axes) => ({
  kind: axes.kind, scale: axes.scale, x: axes.x === null ? "time of arrival" : axes.names[axes.x], y: axes.y.map((at) => axes.names[at]).join(", "),
  title: "", windows: axes.x !== null && WINDOW.includes(axes.names[axes.x]), arrival: axes.x === null,
});

/** @param {Axes} axes @param {import("./live-rows.js").Kept[]} rows the newest first
 * @returns {{ name: string, x: (number | string)[], y: number[] }[]} */
export function seriesOf(axes, rows) {
  /** @type {Map<string, Map<number | string, number>>} */
  const found = new Map();
  for (const { at, values } of rows.toReversed()) {
    const x = axes.x === null ? at : axes.scale === "time" ? timeOf(values[axes.x]) : String(values[axes.x]);
    if (x === null) continue;
    for (const column of axes.y) {
      const y = values[column] === null ? NaN : Number(values[column]);
      if (!Number.isFinite(y)) continue;
      const name = axes.by === null ? axes.names[column] : axes.y.length === 1 ? String(values[axes.by]) : `${values[axes.by]} ${axes.names[column]}`;
      const points = found.get(name) ?? found.set(name, new Map()).get(name);
      points?.set(x, y);
    }
  }
  return [...found].map(([name, points]) => {
    // Categories in the order of their names: in the order of their changes, bars would change places.
    const sorted = [...points].sort(([a], [b]) => (axes.scale === "time" ? Number(a) - Number(b) : a < b ? -1 : 1));
    return { name, x: sorted.map(([x]) => x), y: sorted.map(([, y]) => y) };
  });
}

/** @param {any} value milliseconds, or an ISO time without its zone @returns {number | null} */
function timeOf(value) {
  const ms = typeof value === "number" ? value : Date.parse(/[Zz]|[+-]\d\d:?\d\d$/.test(String(value)) ? String(value) : `${value}Z`);
  return Number.isFinite(ms) ? ms : null;
}
