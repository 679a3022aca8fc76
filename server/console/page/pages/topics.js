// Topics: partitions, settings, and a look at their records by partition, offset, time and content.

import { api } from "../api.js";
import { fill, h } from "../dom.js";
import { grid } from "../grid.js";
import { samples } from "../metrics.js";
import { cell, compact, count, dialog, pieces, prettyJson, quoted, showText, size, time, visible } from "../text.js";
import { editorLink, errorBox, firstStep, link, links, panel, searchField } from "../view.js";

const FIRST_TOPIC = "CREATE STREAM clicks (user STRING KEY, url STRING, size INT)\n  WITH (kafka_topic='clicks', value_format='JSON', partitions=2);";

/** @param {import("../view.js").View} view @param {string} name */
export const show = (view, name) => (name ? showOne(view, name) : showAll(view));

/** @param {import("../view.js").View} view */
async function showAll(view) {
  const list = grid("Topics", [
    { name: "Topic", width: "minmax(220px, 2fr)", value: (row) => row.name, draw: (row) => link("topics", row.name) },
    { name: "Partitions", number: true, width: "110px", value: (row) => row.replicaInfo.length },
    { name: "Offsets", number: true, width: "130px", value: (row) => row.records, draw: (row) => (row.records === undefined ? "–" : compact(row.records)) },
    { name: "Bytes", number: true, width: "130px", value: (row) => row.bytes, draw: (row) => (row.bytes === undefined ? "–" : size(row.bytes)) },
    { name: "Read by queries", number: true, width: "140px", value: (row) => row.consumerCount },
  ], {
    empty: firstStep("No topic matches, or there is none yet. A statement creates one, and so does a Kafka client:", FIRST_TOPIC),
    onopen: (row) => (location.hash = `#/topics/${encodeURIComponent(row.name)}`),
  });
  list.classList.add("tall");
  const internal = h("input", { type: "checkbox" });
  const total = h("span", { class: "soft", role: "status" });
  let all = /** @type {any[]} */ ([]);
  let wanted = "";
  const draw = () => {
    const found = all.filter((row) => !wanted || row.name.toLowerCase().includes(wanted));
    list.rows = found;
    fill(total, `${count(found.length)} of ${count(all.length)}`);
  };
  const look = async () => {
    const statement = internal.checked ? "SHOW ALL TOPICS EXTENDED;" : "SHOW TOPICS EXTENDED;";
    const [{ topics }, series] = await Promise.all([
      api.one(statement, { signal: view.signal }), samples(["millstream_topic_records", "millstream_topic_bytes"], view.signal),
    ]);
    const records = summed(series, "millstream_topic_records");
    const bytes = summed(series, "millstream_topic_bytes");
    all = topics.map((/** @type {any} */ topic) => ({ ...topic, records: records.get(topic.name), bytes: bytes.get(topic.name) }));
    draw();
  };
  internal.addEventListener("change", () => view.once(view.root.querySelector(".errors") ?? view.root, look));
  view.root.append(h("div", { class: "bar" }, searchField("Search topics", (text) => {
    wanted = text;
    draw();
  }), h("label", { class: "check" }, internal, "internal topics"), total), list);
  await view.every(5000, look);
}

/** @param {import("../metrics.js").Sample[]} series @param {string} wanted */
function summed(series, wanted) {
  const found = new Map();
  for (const { name, labels, value } of series) {
    if (name === wanted) found.set(labels.topic, (found.get(labels.topic) ?? 0) + value);
  }
  return found;
}

/** @param {import("../view.js").View} view @param {string} name */
async function showOne(view, name) {
  const { signal } = view;
  const path = `v1/topics/${encodeURIComponent(name)}`;
  const about = h("div", {});
  const partitions = grid("Partitions", [
    { name: "Partition", number: true, value: (row) => row.partition },
    { name: "First offset", number: true, value: (row) => row.logStartOffset, draw: (row) => count(row.logStartOffset) },
    { name: "Next offset", number: true, value: (row) => row.logEndOffset, draw: (row) => count(row.logEndOffset) },
    { name: "Offsets", number: true, value: (row) => row.logEndOffset - row.logStartOffset, draw: (row) => count(row.logEndOffset - row.logStartOffset) },
    { name: "In open transactions", number: true, value: (row) => row.highWatermark - row.lastStableOffset, draw: (row) => count(row.highWatermark - row.lastStableOffset) },
  ]);
  const settings = h("div", {});
  const browser = new RecordBrowser(view, path);
  view.root.append(about, panel("Records", browser.node), panel("Partitions", partitions), panel("Settings", settings));
  await view.every(5000, async () => {
    const [topic, streams, tables] = await Promise.all([api.get(path, { signal }), api.one("SHOW STREAMS;", { signal }), api.one("SHOW TABLES;", { signal })]);
    partitions.rows = topic.partitions;
    browser.partitionCount = topic.partitions.length;
    const sources = [...streams.streams, ...tables.tables].filter((source) => source.topic === name).map((source) => source.name);
    const declare = `CREATE STREAM ${quoted(name.toUpperCase().replaceAll(/[^A-Z0-9]/g, "_"))} (k STRING KEY, v STRING)\n  WITH (kafka_topic='${name.replaceAll("'", "''")}', value_format='JSON');`;
    fill(about, sources.length ? h("p", {}, "Declared as ", links("sources", sources), ".")
      : h("p", {}, "No stream or table is declared over it: keys and values are shown as texts. ", h("a", { href: editorLink(declare) }, "Declare a stream …")));
    fill(settings, topic.settings.length
      ? h("table", {}, h("tbody", {}, topic.settings.map((/** @type {any} */ each) => h("tr", {}, h("th", { scope: "row" }, each.name), h("td", {}, cell(each.value)), h("td", { class: "soft" }, each.default === null ? "" : `default ${each.default}`)))))
      : h("p", { class: "soft" }, "All settings have their defaults."));
  });
}

/** The form and the records that it finds. */
class RecordBrowser {
  /** @type {string} */
  #path;
  /** @type {import("../view.js").View} */
  #view;
  #partition = h("select", { name: "partition" }, h("option", { value: "" }, "all"));
  #from = h("select", { name: "from" }, [["newest", "the newest"], ["oldest", "the oldest"], ["offset", "an offset"], ["time", "a time (UTC)"]].map(([value, text]) => h("option", { value }, text)));
  #offset = h("input", { name: "offset", inputmode: "numeric", pattern: "[0-9]*", "aria-label": "Offset", placeholder: "0", size: "10" });
  #time = h("input", { name: "time", type: "datetime-local", step: "1", "aria-label": "Time (UTC)" });
  #contains = h("input", { name: "contains", type: "search", placeholder: "text in key or value", spellcheck: "false" });
  #limit = h("select", { name: "limit" }, [50, 100, 500, 1000].map((limit) => h("option", { value: limit, selected: limit === 100 }, limit)));
  #latest = h("input", { name: "latest", type: "checkbox" });
  #told = h("p", { class: "soft", role: "status" });
  #list = grid("Records", [
    { name: "Time", width: "212px", value: (row) => row.timestamp, draw: (row) => time(row.timestamp) },
    { name: "Partition", number: true, width: "90px", value: (row) => row.partition },
    { name: "Offset", number: true, width: "100px", value: (row) => row.offset, draw: (row) => count(row.offset) },
    { name: "Key", width: "minmax(120px, 1fr)", value: (row) => row.key, draw: (row) => cell(row.key, { max: 120, more: () => this.#whole(row, "key"), length: row.keyLength }) },
    { name: "Value", width: "minmax(240px, 4fr)", value: (row) => row.value, draw: (row) => cell(row.value, { more: () => this.#whole(row, "value"), length: row.valueLength }) },
  ], { empty: "No record. Choose another place to begin, or write one with INSERT INTO.", onopen: (row) => this.#open(row) });
  #errors = h("div", {});

  /** @param {import("../view.js").View} view @param {string} path */
  constructor(view, path) {
    [this.#view, this.#path] = [view, path];
    const update = () => {
      this.#offset.hidden = this.#from.value !== "offset";
      this.#time.hidden = this.#from.value !== "time";
    };
    this.#from.addEventListener("change", update);
    update();
    const form = h("form", { class: "bar", onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      this.search();
    } },
    h("label", {}, "Partition ", this.#partition), h("label", {}, "From ", this.#from), this.#offset, this.#time,
    h("label", {}, "Containing ", this.#contains), h("label", {}, "At most ", this.#limit), h("label", { class: "check" }, this.#latest, "latest of each key"),
    h("button", { type: "submit", class: "primary" }, "Look"));
    this.#list.classList.add("records");
    this.node = h("div", {}, form, this.#errors, this.#list, this.#told);
    this.search();
  }

  /** @param {number} partitions */
  set partitionCount(partitions) {
    for (let at = this.#partition.childElementCount - 1; at < partitions; at++) this.#partition.append(h("option", { value: at }, at));
  }

  async search() {
    const asked = new URLSearchParams({ limit: this.#limit.value });
    if (this.#partition.value) asked.set("partition", this.#partition.value);
    if (this.#from.value === "oldest") asked.set("offset", "0");
    if (this.#from.value === "offset") asked.set("offset", this.#offset.value || "0");
    if (this.#from.value === "time" && this.#time.value) asked.set("time", String(Date.parse(`${this.#time.value}Z`)));
    if (this.#contains.value) asked.set("contains", this.#contains.value);
    if (this.#latest.checked) asked.set("latest", "true");
    try {
      const found = await api.get(`${this.#path}/records?${asked}`, { signal: this.#view.signal });
      this.#errors.replaceChildren();
      this.#list.rows = this.#from.value === "newest" || this.#latest.checked ? found.records.reverse() : found.records;
      const stopped = found.stopped ? " The search stopped at its limit: begin at a later offset to go on." : "";
      this.#told.textContent = `${count(found.records.length)} records; ${count(found.scanned)} were looked at.${stopped}`;
    } catch (error) {
      if (!this.#view.signal.aborted) this.#errors.replaceChildren(errorBox(error));
    }
  }

  /** @param {any} row @param {"key" | "value"} part @returns {Promise<string>} */
  async #whole(row, part) {
    if (row[`${part}Length`] === undefined) return row[part];
    const asked = `${this.#path}/records?partition=${row.partition}&offset=${row.offset}&limit=1&whole=true`;
    const { records } = await api.get(asked, { signal: this.#view.signal });
    return records[0]?.[part] ?? "";
  }

  /** @param {any} row */
  #open(row) {
    const part = (/** @type {"key" | "value"} */ which) => [
      h("h3", {}, which === "key" ? "Key" : "Value"),
      row[which] === null ? cell(null) : h("pre", { class: "text", tabindex: "0" }, pieces(prettyJson(row[which]), { lines: true })),
      row[`${which}Length`] !== undefined && h("button", { type: "button", onclick: async () => showText(await this.#whole(row, which)) }, `All ${count(row[`${which}Length`])} characters`),
    ];
    const headers = row.headers.length ? [h("h3", {}, "Headers"), h("table", {}, h("tbody", {}, row.headers.map((/** @type {any} */ each) => h("tr", {}, h("th", { scope: "row" }, cell(each.key)), h("td", {}, cell(each.value))))))] : [];
    dialog(`Partition ${row.partition}, offset ${row.offset}`, h("p", { class: "soft" }, visible(time(row.timestamp))), part("key"), part("value"), headers);
  }
}
