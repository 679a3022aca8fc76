"""The commands `millstream cluster`: status of a cluster; moves of replicas, leaders and nodes."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.errors import ServerError

from .addresses import DEFAULT_SERVER, ServerOption
from .command_line import command_group, one_sentence_errors

if TYPE_CHECKING:
    from millstream.server.client import HttpClient

_POLL_S: Final = 0.5
_MEGA: Final = 1_000_000

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


class WrongClusterUsage(ServerError):
    """Flags of `millstream cluster` that exclude each other, are missing or are invalid."""

    code = "WRONG_CLUSTER_USAGE"


def cluster_app() -> typer.Typer:
    return command_group(
        "Cluster: status, replicas, leaders, nodes and upgrades.",
        {
            "status": status,
            "reassign": reassign,
            "replication": replication,
            "throttle": throttle,
            "elect": elect,
            "add-node": add_node,
            "remove-node": remove_node,
            "upgrade": upgrade,
        },
    )


def status(
    server: ServerOption = DEFAULT_SERVER,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Print all partitions, not only unhealthy ones.")
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Wait until all nodes are up and in sync, and the engine runs."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the nodes, the controller and the unhealthy partitions.

    With --wait it returns when all nodes are up, all replicas in sync, and a node runs the engine, or after that time
    with exit code 1.
    """
    with one_sentence_errors():
        from millstream.repl.text.cluster_text import status_lines

        client = _client(server)
        found, well = (client.cluster(), True) if wait is None else _status_when_well(client, wait)
        if json:
            typer.echo(json_module.dumps(found, indent=2))
        else:
            typer.echo("\n".join(status_lines(found, every_partition=partitions)))
    if not well:
        raise typer.Exit(1)


def reassign(
    topic: Annotated[str | None, typer.Argument()] = None,
    partition: Annotated[int | None, typer.Argument(min=0)] = None,
    to: Annotated[
        str | None, typer.Option(metavar="1,2,4", help="Nodes of the new replicas, the preferred leader first.")
    ] = None,
    empty: Annotated[int | None, typer.Option(metavar="NODE", help="Move all replicas away from a node.")] = None,
    balance: Annotated[bool, typer.Option("--balance", help="Balance the replicas over all nodes.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Print the moves without moving.")] = False,
    throttle: Annotated[
        float | None, typer.Option(min=0.000001, metavar="MB/S", help="Limit per node during the move.")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the moves of a partition, or all moves.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait for the end of the move.")] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Move replicas: of one partition, away from one node, or to balance all nodes."""
    with one_sentence_errors():
        client = _client(server)
        if cancel:
            _refuse(to, empty, balance or None, throttle, hint="--cancel takes a topic and a partition, or nothing.")
            body = {} if topic is None else {"topic": topic, "partition": _partition(partition)}
            typer.echo(f"{client.cluster('cancel', body)['calledOff']} moves cancelled")
            return
        proposed = _proposal(client, topic, partition, to, empty, balance)
        if plan:
            from millstream.repl.text.cluster_text import plan_lines

            typer.echo("\n".join(plan_lines(proposed)))
            return
        _move(client, proposed["moves"], throttle, waits=not no_wait)


def replication(
    factor: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="How many replicas each partition is to have.")],
    topic: Annotated[str | None, typer.Argument(help="Without one: all topics, internal ones included.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would move, and move nothing.")] = False,
    throttle: Annotated[
        float | None, typer.Option(min=0.000001, metavar="MB/S", help="How fast, per node, until it is done.")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until it is done.")] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Give topics that are there more replicas, or fewer, while everything goes on."""
    with one_sentence_errors():
        client, asked = _client(server), {"factor": factor, "topic": topic}
        if plan:
            from millstream.repl.text.cluster_text import plan_lines

            typer.echo("\n".join(plan_lines(client.cluster("plan", asked))))
            return
        _move(
            client,
            client.cluster("plan", asked)["moves"],
            throttle,
            waits=not no_wait,
            begin=lambda: client.cluster("replication", asked),
        )


def throttle(
    rate: Annotated[str, typer.Argument(metavar="MB/S", help="A number, or off.")],
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Limit the bandwidth per node of replicas that catch up. In-sync replicas are not limited."""
    with one_sentence_errors():
        _client(server).cluster("throttle", {"bytesPerSecond": None if rate == "off" else _bytes(rate)})


def elect(
    topic: str,
    partition: Annotated[int | None, typer.Argument(min=0, help="Default: all partitions of the topic.")] = None,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="If there is no leader, elect any replica that is up: RECORDS MAY BE LOST."),
    ] = False,
    yes: YesOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Elect the preferred leaders of partitions, or a leader for partitions without one."""
    if unclean and not yes:
        what = topic if partition is None else f"{topic}-{partition}"
        typer.echo(f"If {what} has no leader, a replica that may lack acknowledged records is elected.", err=True)
        typer.echo(
            "The records that it lacks are LOST, even if the other replicas return. Start one of them instead.",
            err=True,
        )
        typer.confirm("Elect it anyway?", abort=True, err=True)
    with one_sentence_errors():
        body = {"topic": topic, "partition": partition, "unclean": unclean}
        elected = _client(server).cluster("elect", body)["elected"]
        names = ", ".join(f"{topic}-{number}" for number in elected)
        typer.echo(f"elected: {names}" if elected else "nothing to elect: the preferred replicas lead already")


def add_node(
    member: Annotated[
        str, typer.Argument(metavar="NODE@HOST:PORT", help="As in --cluster, for example 4@10.0.0.4:9093.")
    ],
    voter: Annotated[bool, typer.Option("--voter", help="Make it a voter when it has caught up.")] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Add a node. Then start it with --join; it gets replicas by `reassign` and from new topics."""
    with one_sentence_errors():
        number, separator, address = member.partition("@")
        if not separator or not number.isdecimal():
            raise WrongClusterUsage(f'"{member}" is not a node', hint="Write NODE@HOST:PORT, as 4@10.0.0.4:9093.")
        client = _client(server)
        client.cluster("add-node", {"node": int(number), "address": address})
        if voter:
            client.cluster("promote-node", {"node": int(number)})
        typer.echo(f"node {number} {'is a voter' if voter else 'may join'}")


def remove_node(
    node: Annotated[int, typer.Argument(min=1)],
    throttle: Annotated[
        float | None, typer.Option(min=0.000001, metavar="MB/S", help="How fast replicas move away, per node.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Take a node out of the cluster, for good: what it has is moved to the others, then its vote is taken.

    A node that is up is to be stopped then, and the command given once more. A replica that no other node could have is
    never given up: the command refuses, and says what to do.
    """
    with one_sentence_errors():
        client = _client(server)
        if _drained(client, node, throttle):
            typer.echo(f"node {node} has no replicas and no vote any more: stop it, then give this command once more")
            return
        client.cluster("remove-node", {"node": node})
        typer.echo(f"node {node} is removed from the cluster")
        voters = [found for found in client.cluster()["nodes"] if found["role"] == "voter"]
        if len(voters) % 2 == 0:
            typer.echo(f"{len(voters)} voters survive the loss of no more nodes than {len(voters) - 1} do", err=True)


def upgrade(server: ServerOption = DEFAULT_SERVER) -> None:
    """Finish a rolling upgrade: use what the new release brings, once every node has been started with it.

    It cannot be undone: a node of an earlier release is refused from then on.
    """
    with one_sentence_errors():
        typer.echo(f"the cluster uses version {_client(server).cluster('upgrade', {})['version']}")


def _drained(client: HttpClient, node: int, throttle: float | None) -> bool:
    """Moves replicas and vote away from a node that has any. True if the node is up, and has to be stopped."""
    known = next((found for found in client.cluster()["nodes"] if found["id"] == node), None)
    if known is None:
        return False  # the server reports the error
    moves = client.cluster("plan", {"empty": node})["moves"] if known["replicas"] or known["state"] == "up" else []
    if moves:
        _move(client, moves, throttle, waits=True)
    if known["state"] != "up":
        return False
    client.cluster("demote-node", {"node": node})
    return True


# The moves of reassign


def _proposal(
    client: HttpClient, topic: str | None, partition: int | None, to: str | None, empty: int | None, balance: bool
) -> Mapping[str, Any]:
    chosen = [topic is not None, empty is not None, balance]
    if chosen.count(True) != 1:
        hint = "Give TOPIC PARTITION --to NODES, --empty NODE or --balance."
        raise WrongClusterUsage("nothing to move is given", hint=hint)
    if topic is None:
        _refuse(to, hint="--to belongs to a topic and a partition.")
        return client.cluster("plan", {"balance": True} if balance else {"empty": empty})
    return _proposal_of_one(client, topic, _partition(partition), _nodes(to))


def _proposal_of_one(client: HttpClient, topic: str, partition: int, after: list[int]) -> Mapping[str, Any]:
    for found in client.cluster()["partitions"]:
        if (found["topic"], found["partition"]) == (topic, partition):
            before = [node for node in found["replicas"] if node not in found["removing"]]
            size = None if found["bytes"] is None else found["bytes"] * len(set(after) - set(before))
            move = {"topic": topic, "partition": partition, "before": before, "after": after, "bytes": size}
            return {"moves": [] if before == after else [move], "bytes": size or 0}
    raise WrongClusterUsage(f'there is no partition {partition} of a topic "{topic}"')


def _move(
    client: HttpClient,
    moves: list[Mapping[str, Any]],
    throttle: float | None,
    *,
    waits: bool,
    begin: Callable[[], object] | None = None,
) -> None:
    """In: `begin`: starts the moves, if more than a reassignment is necessary."""
    if not moves:
        typer.echo("nothing to move")
        return
    before = client.cluster()["throttle"]
    if throttle is not None:
        client.cluster("throttle", {"bytesPerSecond": max(1, int(throttle * _MEGA))})
    wanted = [{"topic": move["topic"], "partition": move["partition"], "replicas": move["after"]} for move in moves]
    begin() if begin is not None else client.cluster("reassign", {"moves": wanted})
    if not waits:
        kept = "" if throttle is None else "; the throttle applies until `millstream cluster throttle off`"
        typer.echo(f"{len(moves)} partitions are moving{kept}")
        return
    names = {(move["topic"], move["partition"]) for move in moves}
    try:
        _wait_until_moved(client, names)
    finally:
        if throttle is not None:
            client.cluster("throttle", {"bytesPerSecond": before})
    typer.echo(f"{len(moves)} partitions moved")


def _wait_until_moved(client: HttpClient, ours: set[tuple[str, int]]) -> None:
    """Prints progress when it changes. A node that stops meanwhile may return."""
    from millstream.repl.text.cluster_text import moving_lines

    shown: list[str] = []
    while True:
        found = _status_if_any(client)
        if found is not None and found["controller"] is not None:
            moving = [
                partition
                for partition in found["partitions"]
                if partition["moving"] and (partition["topic"], partition["partition"]) in ours
            ]
            if not moving:
                return
            lines = [*moving_lines(moving), f"{len(ours) - len(moving)} of {len(ours)} partitions are done"]
            for line in lines:
                if line not in shown:
                    typer.echo(line)
            shown = lines
        time.sleep(_POLL_S)


# Arguments


def _client(server: str) -> HttpClient:
    from millstream.server.client import HttpClient

    return HttpClient(server)


def _status_if_any(client: HttpClient) -> dict[str, Any] | None:
    from millstream.server.client import RemoteError, ServerUnreachable

    try:
        return client.cluster()
    except (RemoteError, ServerUnreachable):
        return None


def _status_when_well(client: HttpClient, seconds: float) -> tuple[dict[str, Any], bool]:
    """Returns as soon as the cluster is healthy, or the status after `seconds`, and whether it is healthy. Raises if no
    node has answered by then."""
    from millstream.repl.text.cluster_text import is_well

    deadline = time.monotonic() + seconds
    while True:
        found = _status_if_any(client)
        if found is not None and is_well(found) and _has_engine(client):
            found = _status_if_any(client)  # of now: the engine may have started only meanwhile
            if found is not None and is_well(found):
                return found, True
        if time.monotonic() >= deadline:
            return (client.cluster() if found is None else found), False
        time.sleep(_POLL_S)


def _has_engine(client: HttpClient) -> bool:
    """Whether the engine answers. Any node answers other requests, but the engine may take a while to start on a new
    node."""
    from millstream.server.client import RemoteError, ServerUnreachable

    try:
        client.info()
    except (RemoteError, ServerUnreachable):
        return False
    return True


def _refuse(*given: object, hint: str) -> None:
    if any(value is not None for value in given):
        raise WrongClusterUsage("these flags exclude each other", hint=hint)


def _partition(partition: int | None) -> int:
    if partition is None:
        raise WrongClusterUsage("no partition is given", hint="Give TOPIC PARTITION, as `clicks 0`.")
    return partition


def _nodes(text: str | None) -> list[int]:
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if not parts or not all(part.isdecimal() for part in parts):
        raise WrongClusterUsage("no target nodes are given", hint="Give --to with their numbers, as --to 1,2,4.")
    return [int(part) for part in parts]


def _bytes(rate: str) -> int:
    try:
        megabytes = float(rate)
    except ValueError:
        megabytes = 0.0
    if not 0 < megabytes < 1e9:
        raise WrongClusterUsage(f'"{rate}" is not a rate', hint="Give megabytes per second, as 20, or off.")
    return max(1, int(megabytes * _MEGA))
