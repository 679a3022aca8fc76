// Consumer groups: how far each has read, and what it has not read.

import { fill, h } from "../dom.js";
import { grid } from "../grid.js";
import { Rates, samples } from "../metrics.js";
import { count, rate } from "../text.js";
import { firstStep, link, panel, searchField } from "../view.js";

const FAMILIES = ["members", "committed_offset", "lag"].map((name) => `millstream_group_${name}`);

/** @param {import("../view.js").View} view @param {string} name */
export async function show(view, name) {
  const rates = new Rates();
  return name ? showOne(view, name, rates) : showAll(view, rates);
}

/** @typedef {{ topic: string, partition: number, committed: number, lag: number | null, rate: number | null }} Place */
/** @typedef {{ name: string, members: number, places: Place[], lag: number, rate: number | null }} Group */

/** @param {Rates} rates @param {AbortSignal} signal */
async function groups(rates, signal) {
  /** @type {Map<string, Group>} */
  const found = new Map();
  const at = (/** @type {string} */ name) => found.get(name) ?? found.set(name, { name, members: 0, places: [], lag: 0, rate: null }).get(name);
  for (const { name, labels, value } of await samples(FAMILIES, signal)) {
    const group = /** @type {Group} */ (at(labels.group));
    if (name === "millstream_group_members") {
      group.members = value;
      continue;
    }
    let place = group.places.find((each) => each.topic === labels.topic && each.partition === Number(labels.partition));
    if (!place) group.places.push((place = { topic: labels.topic, partition: Number(labels.partition), committed: 0, lag: null, rate: null }));
    if (name === "millstream_group_lag") place.lag = value;
    else {
      place.committed = value;
      place.rate = rates.take(`${labels.group}\n${labels.topic}\n${labels.partition}`, value);
    }
  }
  for (const group of found.values()) {
    group.lag = group.places.reduce((sum, place) => sum + (place.lag ?? 0), 0);
    group.rate = group.places.some((place) => place.rate !== null) ? group.places.reduce((sum, place) => sum + (place.rate ?? 0), 0) : null;
  }
  return found;
}

/** @param {import("../view.js").View} view @param {Rates} rates */
async function showAll(view, rates) {
  const list = grid("Consumer groups", [
    { name: "Group", width: "minmax(200px, 2fr)", value: (row) => row.name, draw: (row) => link("groups", row.name) },
    { name: "Members", number: true, value: (row) => row.members },
    { name: "Partitions", number: true, value: (row) => row.places.length },
    { name: "Unread", number: true, value: (row) => row.lag, draw: (row) => count(row.lag) },
    { name: "Reads", number: true, value: (row) => row.rate, draw: (row) => rate(row.rate) },
  ], {
    empty: firstStep("No group matches, or none has committed an offset yet. Queries and Kafka clients commit what they have read."),
    onopen: (row) => (location.hash = `#/groups/${encodeURIComponent(row.name)}`),
  });
  list.classList.add("tall");
  let all = /** @type {Group[]} */ ([]);
  let wanted = "";
  const total = h("span", { class: "soft", role: "status" });
  const draw = () => {
    const found = all.filter((row) => !wanted || row.name.toLowerCase().includes(wanted));
    list.rows = found;
    fill(total, `${count(found.length)} of ${count(all.length)}`);
  };
  view.root.append(h("div", { class: "bar" }, searchField("Search groups", (text) => {
    wanted = text;
    draw();
  }), total), list);
  await view.every(3000, async () => {
    all = [...(await groups(rates, view.signal)).values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    draw();
  });
}

/** @param {import("../view.js").View} view @param {string} name @param {Rates} rates */
async function showOne(view, name, rates) {
  const about = h("p", {});
  const places = grid("Positions", [
    { name: "Topic", value: (row) => row.topic, draw: (row) => link("topics", row.topic) },
    { name: "Partition", number: true, value: (row) => row.partition },
    { name: "Committed", number: true, value: (row) => row.committed, draw: (row) => count(row.committed) },
    { name: "Unread", number: true, value: (row) => row.lag, draw: (row) => (row.lag === null ? "–" : count(row.lag)) },
    { name: "Reads", number: true, value: (row) => row.rate, draw: (row) => rate(row.rate) },
  ], { empty: "It has committed no offset." });
  view.root.append(about, panel("Positions", places), h("p", { class: "soft" }, "millstream group reset-offsets lets a group go on elsewhere."));
  await view.every(3000, async () => {
    const group = (await groups(rates, view.signal)).get(name);
    fill(about, group ? `${count(group.members)} members, ${count(group.lag)} unread records` : "There is no such group (any more).");
    places.rows = group?.places ?? [];
  });
}
