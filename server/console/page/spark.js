// A small picture of rates over the last minutes: lines in SVG, with the latest numbers in words.

import { h, s } from "./dom.js";
import { rate } from "./text.js";

const POINTS_MAX = 120;
const [WIDTH, HEIGHT] = [720, 90];

export class Spark {
  /** @type {number[][]} */
  #points = [];
  #names;
  #lines;
  #words = h("p", { class: "spark-words", role: "status", "aria-live": "off" });

  /** @param {string[]} names a line each */
  constructor(names) {
    this.#names = names;
    this.#lines = names.map((_, at) => s("polyline", { class: `spark-line n${at + 1}` }));
    const picture = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", "aria-hidden": "true", preserveAspectRatio: "none" }, this.#lines);
    this.#words.append("Rates come with the second look.");
    this.node = h("div", {}, picture, this.#words);
  }

  /** @param {number[]} values one of each line */
  add(values) {
    this.#points.push(values);
    if (this.#points.length > POINTS_MAX) this.#points.shift();
    const highest = Math.max(0, ...this.#points.flat());
    const most = highest || 1;
    const x = (/** @type {number} */ at) => WIDTH - (this.#points.length - 1 - at) * (WIDTH / (POINTS_MAX - 1));
    const y = (/** @type {number} */ value) => HEIGHT - 4 - (value / most) * (HEIGHT - 10);
    this.#lines.forEach((line, which) => {
      line.setAttribute("points", this.#points.map((point, at) => `${x(at).toFixed(1)},${y(point[which]).toFixed(1)}`).join(" "));
    });
    this.#words.replaceChildren(...this.#names.flatMap((name, at) => [
      h("span", { class: `key n${at + 1}` }), `${name} ${rate(values[at])} `,
    ]), h("span", { class: "soft" }, `(highest ${rate(highest)})`));
  }
}
