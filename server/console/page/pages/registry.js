// The schema registry: subjects, their versions and texts, and what changed between two of them.

import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { grid } from "../grid.js";
import { count, pieces } from "../text.js";
import { facts, firstStep, link, panel, searchField } from "../view.js";

const FIRST_SCHEMA = "CREATE STREAM orders (id INT KEY, product STRING, amount DOUBLE)\n  WITH (kafka_topic='orders', value_format='AVRO', partitions=1);";

/** @param {import("../view.js").View} view @param {string} name */
export const show = (view, name) => (name ? showOne(view, name) : showAll(view));

/** @param {import("../view.js").View} view */
async function showAll(view) {
  const list = grid("Subjects", [
    { name: "Subject", width: "minmax(220px, 2fr)", value: (row) => row.name, draw: (row) => link("registry", row.name) },
    { name: "Topic", width: "minmax(160px, 1fr)", value: (row) => row.topic, draw: (row) => link("topics", row.topic) },
    { name: "Format", width: "120px", value: (row) => row.type },
    { name: "Versions", number: true, width: "110px", value: (row) => row.versions },
    { name: "Latest", number: true, width: "100px", value: (row) => row.latest },
    { name: "Schema id", number: true, width: "110px", value: (row) => row.id },
    { name: "Compatibility", width: "180px", value: (row) => row.compatibility },
  ], {
    empty: firstStep("No subject matches, or none is registered yet. A stream in AVRO, JSON_SR or PROTOBUF registers its schema.", FIRST_SCHEMA),
    onopen: (row) => (location.hash = `#/registry/${encodeURIComponent(row.name)}`),
  });
  list.classList.add("tall");
  let all = /** @type {any[]} */ ([]);
  let wanted = "";
  const total = h("span", { class: "soft", role: "status" });
  const level = h("span", { class: "soft" });
  const draw = () => {
    list.rows = all.filter((row) => !wanted || row.name.toLowerCase().includes(wanted));
    fill(total, `${count(list.rows.length)} of ${count(all.length)}`);
  };
  view.root.append(h("div", { class: "bar" }, searchField("Search subjects", (text) => {
    wanted = text;
    draw();
  }), total, level), list);
  await view.every(5000, async () => {
    const found = await api.get("v1/subjects", { signal: view.signal });
    all = found.subjects;
    fill(level, `compatibility by default: ${found.compatibility}`);
    draw();
  });
}

/** @param {import("../view.js").View} view @param {string} name */
async function showOne(view, name) {
  const about = h("div", {});
  const choice = h("select", { "aria-label": "Version" });
  const text = h("div", {});
  let versions = /** @type {any[]} */ ([]);
  const draw = () => {
    const at = Math.max(0, versions.findIndex((each) => String(each.version) === choice.value));
    const now = versions[at];
    if (!now) return;
    const before = versions[at + 1];
    const references = now.references.flatMap((/** @type {any} */ other, /** @type {number} */ each) => [each > 0 && ", ", link("registry", other.subject), ` version ${other.version}`]);
    fill(text,
      facts([["Schema id", String(now.id)], ["Format", now.type], ["State", now.deleted ? "deleted" : "in use"], ["References", references.length ? references : "–"]]),
      h("pre", { class: "text", tabindex: "0", "aria-label": `Schema of version ${now.version}` }, lines(now, before)),
      before && h("p", { class: "soft" }, `Lines with + are not in version ${before.version}.`));
  };
  choice.addEventListener("change", draw);
  view.root.append(about, panel("Schema", h("div", { class: "bar" }, h("label", {}, "Version ", choice)), text));
  await view.every(5000, async () => {
    const found = await api.get(`v1/subjects/${encodeURIComponent(name)}`, { signal: view.signal });
    fill(about, facts([["Topic", link("topics", found.topic)], ["Compatibility", found.compatibility], ["Versions", count(found.versions.length)]]));
    if (JSON.stringify(found.versions) === JSON.stringify(versions)) return;
    versions = found.versions;
    const chosen = choice.value;
    choice.replaceChildren(...versions.map((each) => h("option", { value: each.version }, `${each.version}${each.deleted ? " (deleted)" : ""}`)));
    if (versions.some((each) => String(each.version) === chosen)) choice.value = chosen;
    draw();
  });
}

/** The lines of a schema; those that the version before has not begin with a plus. @param {any} now @param {any} [before] */
function lines(now, before) {
  const own = /** @type {string[]} */ (laidOut(now).split("\n"));
  if (!before) return own.flatMap((line) => [...pieces(`  ${line}`), "\n"]);
  const known = new Set(laidOut(before).split("\n").map(bare));
  return own.flatMap((line) => [...(known.has(bare(line)) ? pieces(`  ${line}`) : [h("ins", {}, pieces(`+ ${line}`))]), "\n"]);
}

/** Without what only tells that a line follows. @param {string} line */
const bare = (line) => line.trim().replace(/,$/, "");

/** @param {any} version @returns {string} */
function laidOut(version) {
  if (version.type === "PROTOBUF") return version.schema;
  try {
    return JSON.stringify(JSON.parse(version.schema), null, 2);
  } catch {
    return version.schema;
  }
}
