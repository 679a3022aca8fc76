"""Shows the state of a cluster: the answer of GET /cluster, as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .tables import printable, render_table

Status = Mapping[str, Any]

_NODE_TITLES: Final = (
    "Node", "State", "Role", "Rack", "Address", "Kafka", "HTTP", "Replicas", "Leads", "Metadata behind",
)  # fmt: skip
_PARTITION_TITLES: Final = ("Topic", "Partition", "Leader", "Replicas", "In sync", "Records", "Bytes", "What")
_COUNTED: Final = {
    "offline": "offline",
    "underMinInSync": "under min.insync.replicas",
    "underReplicated": "under-replicated",
    "moving": "moving",
    "unclean": "led uncleanly",
}
_MEGA: Final = 1_000_000


def status_lines(status: Status, *, every_partition: bool = False) -> Iterator[str]:
    """The nodes, and the partitions that need attention, or all partitions."""
    yield _headline(status)
    yield from _versions(status)
    if status["throttle"] is not None:
        yield f"replicas that catch up are copied at {status['throttle'] / _MEGA:g} MB/s per node at most"
    yield ""
    yield from render_table(_NODE_TITLES, [_node_row(node, status.get("engine")) for node in status["nodes"]], None)
    yield ""
    partitions = status["partitions"]
    counts = {text: sum(partition[name] for partition in partitions) for name, text in _COUNTED.items()}
    troubles = [f"{count} {text}" for text, count in counts.items() if count]
    yield f"{len(partitions)} partitions: {', '.join(troubles) or 'all replicas in sync'}"
    shown = [partition for partition in partitions if every_partition or _is_notable(partition)]
    if shown:
        yield from render_table(_PARTITION_TITLES, [_partition_row(partition) for partition in shown], None)


def is_well(status: Status) -> bool:
    """There is a controller, all nodes are up with a known address, and all replicas are in sync."""
    return (
        status["controller"] is not None
        and all(node["state"] == "up" and _has_an_address(node) for node in status["nodes"])
        and not any(partition["underReplicated"] or partition["offline"] for partition in status["partitions"])
    )


def _has_an_address(node: Status) -> bool:
    """A server that used to run alone has no address until it registers again."""
    return not str(node["address"] or ":0").endswith(":0")


def _headline(status: Status) -> str:
    name = printable(status["cluster"])
    if status["controller"] is None:
        return (
            f"cluster {name}: NOBODY DECIDES. A majority of the voters has to be up and to reach each other;"
            " what follows is what the asked node knew last"
        )
    metadata = f"term {status['term']}, {status['commit']} records of metadata"
    return f"cluster {name}: node {status['controller']} decides ({metadata})"


def _versions(status: Status) -> Iterator[str]:
    """What is missing to finish an upgrade. Servers of earlier releases do not report versions."""
    used = status.get("version", 1)
    speaks = {node["id"]: node.get("newestVersion") or 1 for node in status["nodes"] if node["state"] != "added"}
    newest = max(speaks.values(), default=used)
    older = [str(node) for node, version in speaks.items() if version < newest]
    if newest <= used:
        return
    if older:
        nodes = f"node {older[0]} does" if len(older) == 1 else f"nodes {', '.join(older)} do"
        yield f"it uses version {used}: {nodes} not say yet to speak version {newest}"
    else:
        yield f"it uses version {used}, and every node speaks version {newest}: `millstream cluster upgrade` raises it"


def _node_row(node: Mapping[str, Any], engine: int | None) -> list[object]:
    """In: `engine`: the node that runs it. Servers of earlier releases do not say."""
    roles = (node["role"], "controller" if node["controller"] else "", "engine" if node["id"] == engine else "")
    role = ", ".join(filter(None, roles))
    texts = [node[name] or "" for name in ("rack", "address", "kafka", "http")]
    behind = "" if node["metadataLag"] is None else node["metadataLag"]
    return [node["id"], node["state"], role, *map(printable, texts), node["replicas"], node["leads"], behind]


def _is_notable(partition: Mapping[str, Any]) -> bool:
    return any(partition[name] for name in _COUNTED)


def _partition_row(partition: Mapping[str, Any]) -> list[object]:
    what = [text for name, text in _COUNTED.items() if partition[name]]
    what += [f"node {node} has {share}" for node, share in copied_shares(partition).items()]
    if partition["eligible"]:
        what.append(f"eligible: {_nodes(partition['eligible'])}")
    return [
        printable(partition["topic"]),
        partition["partition"],
        "none" if partition["leader"] is None else partition["leader"],
        _nodes(partition["replicas"]),
        _nodes(partition["inSync"]),
        *("" if partition[name] is None else partition[name] for name in ("records", "bytes")),
        "; ".join(what),
    ]


def copied_shares(partition: Mapping[str, Any]) -> dict[int, str]:
    """How much of the data each replica has that is not yet in sync, by node.

    >>> copied_shares({"records": 200, "inSync": [1], "followers": [{"node": 2, "missing": 50, "behindMs": 10}]})
    {2: '75 %'}

    A leader that has just been elected does not know what a node that is down has, only that a node to be added has
    nothing:

    >>> silent = [{"node": 2, "missing": None, "behindMs": 0}, {"node": 3, "missing": None, "behindMs": 0}]
    >>> copied_shares({"records": 200, "inSync": [1], "adding": [3], "followers": silent})
    {2: 'an unknown share', 3: '0 %'}
    """
    shares: dict[int, str] = {}
    for follower in partition["followers"]:
        if follower["node"] in partition["inSync"] or not partition["records"]:
            continue
        if follower["missing"] is None and follower["node"] not in partition.get("adding", ()):
            shares[follower["node"]] = "an unknown share"
            continue
        missing = partition["records"] if follower["missing"] is None else follower["missing"]
        shares[follower["node"]] = f"{max(0, 100 * (partition['records'] - missing) // partition['records'])} %"
    return shares


def plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """The answer of POST /cluster/plan, as lines."""
    moves = plan["moves"]
    if not moves:
        yield "nothing to move"
        return
    rows: list[list[object]] = [
        [
            printable(move["topic"]),
            move["partition"],
            _nodes(move["before"]),
            _nodes(move["after"]),
            "unknown" if move["bytes"] is None else move["bytes"],
        ]
        for move in moves
    ]
    yield from render_table(("Topic", "Partition", "Replicas now", "Then", "Bytes to copy"), rows, None)
    yield f"{len(moves)} partitions change, {plan['bytes'] / _MEGA:.1f} MB are to be copied"


def moving_lines(partitions: Sequence[Mapping[str, Any]]) -> list[str]:
    """The progress of reassignments."""
    lines: list[str] = []
    for partition in partitions:
        shares = copied_shares(partition)
        parts = [f"node {node} has {shares.get(node, 'all')}" for node in partition["adding"]]
        name = f"{printable(partition['topic'])}-{partition['partition']}"
        lines.append(f"{name}: {', '.join(parts) or 'about to be done'}")
    return lines


def _nodes(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))
