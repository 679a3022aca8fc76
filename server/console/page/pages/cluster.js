// The nodes of a cluster and the state of its partitions; of a single server, what it says about itself.

import { api, ServerError } from "../api.js";
import { fill, h } from "../dom.js";
import { grid } from "../grid.js";
import { compact, count, size } from "../text.js";
import { facts, link, panel } from "../view.js";

/** @param {import("../view.js").View} view */
export async function show(view) {
  const summary = h("div", {});
  const nodes = grid("Nodes", [
    { name: "Node", number: true, width: "80px", value: (row) => row.id },
    { name: "State", width: "130px", value: stateOf, draw: (row) => h("span", { class: `state ${stateOf(row) === "up" ? "running" : "error"}` }, stateOf(row)) },
    { name: "Role", width: "180px", value: (row) => (row.controller ? `controller, ${row.role}` : row.role) },
    { name: "Address", value: (row) => row.address },
    { name: "HTTP", value: (row) => row.http },
    { name: "Rack", width: "110px", value: (row) => row.rack },
    { name: "Replicas", number: true, width: "100px", value: (row) => row.replicas },
    { name: "Leads", number: true, width: "100px", value: (row) => row.leads },
    { name: "Heard of", number: true, width: "120px", value: (row) => row.heardMsAgo, draw: (row) => (row.heardMsAgo === null ? "–" : `${compact(row.heardMsAgo)} ms ago`) },
  ], { empty: "No node is known." });
  const partitions = grid("Partitions that need care", [
    { name: "Topic", value: (row) => row.topic, draw: (row) => link("topics", row.topic) },
    { name: "Partition", number: true, width: "100px", value: (row) => row.partition },
    { name: "Leader", number: true, width: "100px", value: (row) => row.leader },
    { name: "What", width: "minmax(200px, 2fr)", value: (row) => careOf(row).join(", ") },
  ], { empty: "Each partition has its leader and enough replicas." });
  const servers = h("div", {});
  const [nodesPanel, partitionsPanel] = [panel("Nodes", nodes), panel("Partitions that need care", partitions)];
  view.root.append(summary, nodesPanel, partitionsPanel, panel("Servers and their queries", servers));
  await view.every(3000, async () => {
    const { signal } = view;
    const [status, health, ksql] = await Promise.all([
      api.get("cluster", { signal }).catch((error) => {
        if (error instanceof ServerError && error.status === 400) return null; // one server, no cluster
        throw error;
      }),
      api.get("healthcheck", { signal }), api.get("clusterStatus", { signal }),
    ]);
    nodesPanel.hidden = partitionsPanel.hidden = status === null;
    const parts = /** @type {[string, any][]} */ (Object.entries(health.details).map(([name, { isHealthy }]) => [name, isHealthy ? "healthy" : "NOT HEALTHY"]));
    const lead = /** @type {[string, any][]} */ (status === null ? [] : [["Cluster", status.cluster], ["Controller", status.controller ?? "none: nothing can be changed"]]);
    fill(summary, facts([["State", health.serverState], ...lead, ...parts]),
      status === null && h("p", {}, "This server is a single node, with one copy of its data. Three nodes keep running when one fails: see docs/cluster.md."));
    if (status !== null) {
      const troubled = status.partitions.filter((/** @type {any} */ partition) => careOf(partition).length);
      nodes.rows = status.nodes;
      partitions.rows = troubled;
    }
    fill(servers, h("table", {}, h("thead", {}, h("tr", {}, ["Server", "Alive", "Queries"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, Object.entries(ksql.clusterStatus).map(([name, each]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, each.hostAlive ? "yes" : "no"), h("td", {}, count(Object.keys(each.activeStandbyPerQuery ?? {}).length)))))));
  });
}

/** @param {any} node */
const stateOf = (node) => String(node.state ?? (node.alive === false ? "silent" : "up")).toLowerCase();

/** What is wrong with a partition. @param {any} partition */
function careOf(partition) {
  const missing = (partition.replicas?.length ?? 0) - (partition.inSync?.length ?? partition.replicas?.length ?? 0);
  return [
    partition.offline && "no leader: it can be neither read nor written",
    partition.underMinInSync && "too few replicas in sync: it takes no writes with acks=all",
    missing > 0 && `${compact(missing)} of ${partition.replicas.length} replicas are behind`,
    partition.moving && `moving${partition.bytes ? ` (${size(partition.bytes)})` : ""}`,
    partition.preferredLeads === false && "not led by its preferred replica",
  ].filter(Boolean);
}
