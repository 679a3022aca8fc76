// A graph that the server has laid out (GET /graph?format=layout), drawn in SVG. Nodes are links; rates stand at edges.

import { h, s } from "./dom.js";
import { pieces, visible } from "./text.js";

const [LINE, PAD, MARGIN] = [16, 9, 14];

/** @typedef {{ id: string, kind: string, title: string, lines: string[], state: string, x: number, y: number, width: number, height: number }} DrawnNode */
/** @typedef {{ source: string, target: string, dashed: boolean, bends: [number, number][] }} DrawnEdge */
/** @typedef {{ nodes: DrawnNode[], edges: DrawnEdge[], width: number, height: number }} Layout */

export class GraphPicture {
  #shown = "";
  #zoom = 1;
  #size = [0, 0];
  /** @type {Map<string, SVGElement>} */
  #labels = new Map();
  #frame = h("div", { class: "graph-frame", tabindex: "0", role: "region", "aria-label": "Graph" });

  constructor() {
    const by = (/** @type {number} */ factor) => () => {
      this.#zoom = factor === 0 ? 1 : Math.min(3, Math.max(0.15, this.#zoom * factor));
      this.#scale();
    };
    this.node = h("div", { class: "graph-box" }, this.#frame, h("div", { class: "zoom" },
      h("button", { type: "button", "aria-label": "Larger", onclick: by(1.25) }, "+"),
      h("button", { type: "button", "aria-label": "Smaller", onclick: by(0.8) }, "−"),
      h("button", { type: "button", "aria-label": "Full size", onclick: by(0) }, "1:1")));
  }

  /** Draws anew only where something changed. @param {Layout} layout @param {string} [chosen] a node's id */
  show(layout, chosen = "") {
    const text = JSON.stringify([layout, chosen]);
    if (text === this.#shown) return;
    this.#shown = text;
    this.#labels.clear();
    const boxes = new Map(layout.nodes.map((node) => [node.id, node]));
    this.#size = [layout.width + 2 * MARGIN, layout.height + 2 * MARGIN];
    const svg = s("svg", { class: "graph", viewBox: `${-MARGIN} ${-MARGIN} ${this.#size[0]} ${this.#size[1]}`, role: "group", "aria-label": `${layout.nodes.length} nodes, ${layout.edges.length} edges` },
      s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "9", markerHeight: "9", markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, s("path", { class: "arrow-head", d: "M0 0L8 4L0 8z" }))),
      layout.edges.map((edge) => this.#edge(edge, boxes)), layout.nodes.map((node) => drawnNode(node, node.id === chosen)));
    this.#frame.replaceChildren(layout.nodes.length ? svg : h("p", { class: "soft" }, "There is nothing to draw yet."));
    this.#scale();
  }

  /** The words at edges, by `source → target`. @param {(edge: DrawnEdge) => string} words @param {DrawnEdge[]} edges */
  label(words, edges) {
    for (const edge of edges) {
      const label = this.#labels.get(`${edge.source}→${edge.target}`);
      const text = words(edge);
      if (label && label.textContent !== text) label.textContent = text;
      label?.parentElement?.classList.toggle("flows", !["", "0/s", "–"].includes(text));
    }
  }

  #scale() {
    const svg = this.#frame.querySelector("svg");
    svg?.setAttribute("width", String(Math.round(this.#size[0] * this.#zoom)));
    svg?.setAttribute("height", String(Math.round(this.#size[1] * this.#zoom)));
  }

  /** @param {DrawnEdge} edge @param {Map<string, DrawnNode>} boxes */
  #edge(edge, boxes) {
    const [from, to] = [boxes.get(edge.source), boxes.get(edge.target)];
    if (!from || !to) return null;
    const [start, end] = [[from.x + from.width, from.y + from.height / 2], [to.x, to.y + to.height / 2]];
    const points = [start, ...edge.bends, end];
    let path = `M${start[0]} ${start[1]}`;
    for (let at = 1; at < points.length; at++) {
      const [[ax, ay], [bx, by]] = [points[at - 1], points[at]];
      const half = (bx - ax) / 2;
      path += `C${ax + half} ${ay} ${bx - half} ${by} ${bx} ${by}`;
    }
    const label = s("text", { class: "edge-label", x: (start[0] + points[1][0]) / 2, y: (start[1] + points[1][1]) / 2 - 5, "text-anchor": "middle" });
    this.#labels.set(`${edge.source}→${edge.target}`, label);
    return s("g", { class: "edge" }, s("path", { class: edge.dashed ? "edge-line dashed" : "edge-line", d: path, "marker-end": "url(#arrow)" }), label);
  }
}

/** @param {DrawnNode} node @param {boolean} chosen */
function drawnNode(node, chosen) {
  const kind = node.kind.toLowerCase();
  const round = kind === "query" ? 18 : kind === "table" ? 9 : 3;
  const lines = [...node.lines, ...(node.state ? [node.state] : [])];
  const content = [
    s("rect", { class: "node-box", width: node.width, height: node.height, rx: round }),
    s("text", { class: "node-title", x: PAD, y: PAD + 11 }, pieces(cut(node.title)).map((piece) => piece.textContent).join("")),
    lines.map((line, at) => s("text", { class: "node-line", x: PAD, y: PAD + 11 + (at + 1) * LINE }, visible(cut(line)))),
  ];
  const place = { transform: `translate(${node.x} ${node.y})`, class: `node ${kind} ${node.state.toLowerCase()}${chosen ? " chosen" : ""}` };
  const page = kind === "query" ? "queries" : kind === "step" ? null : "sources";
  if (page === null) return s("g", place, content.flat());
  const name = node.id.slice(node.id.indexOf(" ") + 1);
  return s("a", { ...place, href: `#/${page}/${encodeURIComponent(name)}`, "aria-label": visible(`${node.kind} ${name} ${node.state}`.trim()) }, content.flat());
}

/** As the server has measured it. @param {string} text */
const cut = (text) => (text.length <= 44 ? text : `${text.slice(0, 43)}…`);
