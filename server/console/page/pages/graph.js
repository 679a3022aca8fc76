// Where records come from and where they go: streams, tables and queries, with the rates between them.

import { api } from "../api.js";
import { h } from "../dom.js";
import { GraphPicture } from "../graph-picture.js";
import { queryFigures, Rates } from "../metrics.js";
import { rate } from "../text.js";
import { firstStep, searchField } from "../view.js";

/** @param {import("../view.js").View} view @param {string} of */
export async function show(view, of) {
  const picture = new GraphPicture();
  picture.node.classList.add("tall");
  const names = h("datalist", { id: "graph-names" });
  const search = searchField("Only what is around … (name of a stream, table or topic)", () => {});
  search.setAttribute("list", "graph-names");
  search.value = of;
  search.addEventListener("change", () => (location.hash = search.value ? `#/graph/${encodeURIComponent(search.value)}` : "#/graph"));
  const hint = h("div", {});
  view.root.append(h("div", { class: "bar" }, search, names, legend()), hint, picture.node);
  view.title(of ? `Graph around ${of}` : "Graph");
  const rates = new Rates();
  const { signal } = view;
  let around = of;
  if (of) {
    // Of a query, /graph gives the plan: what is around it is what is around the table or stream that it writes.
    const { queries } = await api.one("SHOW QUERIES;", { signal });
    const query = queries.find((/** @type {any} */ each) => each.id === of.toUpperCase());
    if (query?.sinks.length) around = query.sinks[0];
  }
  await view.every(2000, async () => {
    const where = around ? `&of=${encodeURIComponent(around)}` : "";
    const layout = await api.get(`graph?format=layout${where}`, { signal });
    picture.show(layout, of ? `query ${of.toUpperCase()}` : "");
    hint.replaceChildren(...(layout.nodes.length ? [] : [firstStep("There are no streams and tables yet.", "SHOW STREAMS;")]));
    if (names.childElementCount === 0) names.append(...layout.nodes.filter((/** @type {any} */ node) => node.kind !== "QUERY").map((/** @type {any} */ node) => h("option", { value: node.id.slice(7) })));
    const figures = await queryFigures(rates, signal);
    picture.label(({ source, target }) => {
      const into = target.startsWith("query ");
      const seen = figures.get((into ? target : source).slice("query ".length));
      return seen === undefined || (!into && !source.startsWith("query ")) ? "" : rate(into ? seen.inRate : seen.outRate).replace("–", "");
    }, layout.edges);
  });
}

const legend = () => h("span", { class: "legend soft" }, ["stream", "table", "query"].map((kind) => [h("i", { class: `swatch ${kind}` }), `${kind} `]).flat());
