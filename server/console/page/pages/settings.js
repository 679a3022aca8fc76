// The server's properties, who I am, and what users may do.

import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { grid } from "../grid.js";
import { cell, count, pieces } from "../text.js";
import { panel, searchField } from "../view.js";

const VERBS = [["read", "read"], ["insert", "write"], ["ddl", "create, alter, drop"], ["group", "consumer groups"], ["transaction", "transactional ids"]];

/** @param {import("../view.js").View} view */
export async function show(view) {
  const list = grid("Properties", [
    { name: "Property", width: "minmax(260px, 1.6fr)", value: (row) => row.name },
    { name: "Value", width: "minmax(120px, 1fr)", value: (row) => row.value },
    { name: "Where", width: "110px", value: (row) => (row.editable ? "session" : "server") },
    { name: "Meaning", width: "minmax(260px, 3fr)", value: (row) => row.description, draw: (row) => h("span", { title: row.description }, pieces(row.description)) },
  ], { empty: "No property matches." });
  list.classList.add("tall");
  const access = h("div", {});
  const total = h("span", { class: "soft", role: "status" });
  let all = /** @type {any[]} */ ([]);
  let wanted = "";
  const draw = () => {
    list.rows = all.filter((row) => !wanted || `${row.name} ${row.value} ${row.description}`.toLowerCase().includes(wanted));
    fill(total, `${count(list.rows.length)} of ${count(all.length)}`);
  };
  view.root.append(panel("Users and rights", access), panel("Properties of the server", h("div", { class: "bar" }, searchField("Search properties", (text) => {
    wanted = text;
    draw();
  }), total), list));
  await view.every(15_000, async () => {
    const [{ properties }, rights] = await Promise.all([api.one("SHOW PROPERTIES;", { signal: view.signal }), api.get("v1/access", { signal: view.signal })]);
    all = properties;
    draw();
    fill(access, ...accessNodes(rights));
  });
}

/** @param {any} rights */
function accessNodes(rights) {
  if (rights.user === null) {
    return [h("p", {}, "There are no users: everybody who can reach this server may do everything. See [access] in docs/http.md.")];
  }
  const me = h("p", {}, "You are ", h("strong", {}, pieces(rights.user)), rights.administrator ? ", an administrator, and may do everything." : ".");
  const users = rights.users ?? [{ name: rights.user, administrator: rights.administrator, rights: rights.rights }];
  const head = h("tr", {}, h("th", { scope: "col" }, "User"), VERBS.map(([, title]) => h("th", { scope: "col" }, title)));
  const rows = users.map((/** @type {any} */ user) => h("tr", {}, h("th", { scope: "row" }, cell(user.name)),
    user.administrator ? h("td", { colspan: VERBS.length }, "everything") : VERBS.map(([verb]) => h("td", {}, user.rights[verb].length ? cell(user.rights[verb].join(", ")) : "–"))));
  return [me, h("table", {}, h("thead", {}, head), h("tbody", {}, rows))];
}
