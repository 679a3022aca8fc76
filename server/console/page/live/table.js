// @ts-nocheck: it was written without types
// The live table: rows stay in their places, and what changed lights up for a moment.

import { count, element, follow, stateLine } from "./shared.js";

function render({ model, el }) {
  const columns = model.get("_columns");
  const keyed = model.get("_keyed");
  const line = stateLine(model);
  const body = element("tbody");
  const heads = columns.map((column, index) => head(column, index));
  const table = element(
    "table",
    { "aria-label": "Rows of a live query" },
    element("thead", {}, element("tr", {}, ...heads)),
    body,
  );
  const frame = element("div", { class: "ms-rows", tabindex: "0", role: "region", "aria-label": "Live table" }, table);
  const empty = element("div", { class: "ms-empty" }, "No rows yet");
  el.classList.add("millstream");
  el.append(element("div", { class: "ms-card" }, frame, empty, line.node));

  const drawn = new Map(); // table rows by the row's number
  let order = null; // { index, down }: the column that the reader sorts by

  function head(column, index) {
    const button = element("button", { type: "button", title: `Sort by ${column.name}` }, column.name);
    button.append(element("small", {}, column.type + (column.key ? " key" : "")));
    const node = element("th", { scope: "col", class: column.number ? "ms-number" : "" }, button);
    button.addEventListener("click", () => {
      if (order?.index !== index) order = { index, down: column.number };
      else order = order.down === column.number ? { index, down: !order.down } : null;
      heads.forEach((other, at) => {
        if (order?.index === at) other.setAttribute("aria-sort", order.down ? "descending" : "ascending");
        else other.removeAttribute("aria-sort");
      });
      draw();
    });
    return node;
  }

  function compare(a, b) {
    if (a === b) return 0;
    if (a === null || b === null) return a === null ? 1 : -1;
    const numbers = columns[order.index].number;
    const found = numbers ? Number(a) - Number(b) : String(a).localeCompare(String(b), undefined, { numeric: true });
    return order.down ? -found : found;
  }

  function sorted(ids, cells) {
    const places = ids.map((_, place) => place);
    if (order) return places.sort((a, b) => compare(cells[a][order.index], cells[b][order.index]));
    return keyed ? places : places.reverse(); // of changes, the latest stands on top
  }

  function draw() {
    const { ids = [], cells = [], gone = [], forgotten = 0 } = model.get("_rows");
    const seen = new Set(ids);
    const deleted = new Set(gone);
    for (const [id, row] of drawn) {
      if (!seen.has(id)) {
        row.node.remove();
        drawn.delete(id);
      }
    }
    const first = drawn.size === 0;
    let after = null;
    for (const place of sorted(ids, cells)) {
      const id = ids[place];
      const row = drawn.get(id) ?? rowOf(id, first);
      fill(row, cells[place]);
      row.node.classList.toggle("ms-gone", deleted.has(id));
      const wanted = after ? after.nextSibling : body.firstChild;
      if (wanted !== row.node) body.insertBefore(row.node, wanted);
      after = row.node;
    }
    empty.hidden = ids.length > 0;
    table.hidden = false;
    line.update(forgotten ? ` · the last ${count(ids.length)} shown` : "");
  }

  function rowOf(id, quiet) {
    const row = { node: element("tr"), values: null, quiet };
    drawn.set(id, row);
    return row;
  }

  function fill(row, values) {
    const before = row.values;
    row.values = values;
    if (before === null) {
      row.node.append(...values.map((value, index) => cell(value, index)));
      if (!row.quiet) light(row.node);
      return;
    }
    values.forEach((value, index) => {
      if (value === before[index]) return;
      const node = cell(value, index);
      row.node.children[index].replaceWith(node);
      light(node);
    });
  }

  function cell(value, index) {
    const node = element("td", { class: columns[index].number ? "ms-number" : "" });
    node.textContent = value === null ? "NULL" : String(value);
    if (value === null) node.classList.add("ms-null");
    return node;
  }

  function light(node) {
    node.classList.add("ms-changed");
    node.addEventListener("animationend", () => node.classList.remove("ms-changed"), { once: true });
  }

  return follow(model, ["_rows", "_status"], draw);
}

export default { render };
