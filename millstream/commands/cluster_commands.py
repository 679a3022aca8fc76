"""The commands `millstream cluster`: how a cluster is, and moving replicas, leaders and nodes."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.errors import ServerError

from .command_line import command_group, one_sentence_errors

if TYPE_CHECKING:
    from millstream.server.client import HttpClient

_POLL_S: Final = 0.5
_MEGA: Final = 1_000_000

ServerOption = Annotated[
    str, typer.Option("--server", envvar="MILLSTREAM_SERVER", metavar="URL", help="The HTTP address of any node.")
]
DEFAULT_SERVER: Final = "http://127.0.0.1:8088"
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class WrongClusterUsage(ServerError):
    """Flags of `millstream cluster` that do not go together, or say nothing."""

    code = "WRONG_CLUSTER_USAGE"


def cluster_app() -> typer.Typer:
    return command_group(
        "A cluster: how it is, and moving replicas, leaders, nodes.",
        {
            "status": status,
            "reassign": reassign,
            "throttle": throttle,
            "elect": elect,
            "add-node": add_node,
            "remove-node": remove_node,
        },
    )


def status(
    server: ServerOption = DEFAULT_SERVER,
    partitions: Annotated[bool, typer.Option("--partitions", help="All of them, not only those in trouble.")] = False,
    wait: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Until all nodes are up and all replicas in sync.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Print the nodes, who decides, and the partitions that are not well.

    With --wait it returns when all is well; exit code 1 where it is not by then.
    """
    with one_sentence_errors():
        from millstream.repl.text.cluster_text import is_well, status_lines

        client = _client(server)
        found = client.cluster() if wait is None else _status_when_well(client, wait)
        if json:
            typer.echo(json_module.dumps(found, indent=2))
        else:
            typer.echo("\n".join(status_lines(found, every_partition=partitions)))
    if wait is not None and not is_well(found):
        raise typer.Exit(1)


def reassign(
    topic: Annotated[str | None, typer.Argument()] = None,
    partition: Annotated[int | None, typer.Argument(min=0)] = None,
    to: Annotated[
        str | None, typer.Option(metavar="1,2,4", help="The nodes that are to have it, the preferred leader first.")
    ] = None,
    empty: Annotated[int | None, typer.Option(metavar="NODE", help="Move all replicas away from a node.")] = None,
    balance: Annotated[bool, typer.Option("--balance", help="Give all nodes about as much.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Print what would move, and move nothing.")] = False,
    throttle: Annotated[
        float | None, typer.Option(min=0.000001, metavar="MB/S", help="How fast, per node, until it is done.")
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Call off what is under way: of a partition, or all.")
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until it is done.")] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Move replicas: of one partition, from one node, or so that all nodes have about as much."""
    with one_sentence_errors():
        client = _client(server)
        if cancel:
            _refuse(to, empty, balance or None, throttle, hint="--cancel takes a topic and a partition, or nothing.")
            body = {} if topic is None else {"topic": topic, "partition": _partition(partition)}
            typer.echo(f"{client.cluster('cancel', body)['calledOff']} called off")
            return
        proposed = _proposal(client, topic, partition, to, empty, balance)
        if plan:
            from millstream.repl.text.cluster_text import plan_lines

            typer.echo("\n".join(plan_lines(proposed)))
            return
        _move(client, proposed["moves"], throttle, waits=not no_wait)


def throttle(
    rate: Annotated[str, typer.Argument(metavar="MB/S", help="A number, or off.")],
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Limit how fast replicas catch up that are not in sync, per node."""
    with one_sentence_errors():
        _client(server).cluster("throttle", {"bytesPerSecond": None if rate == "off" else _bytes(rate)})


def elect(
    topic: str,
    partition: Annotated[int | None, typer.Argument(min=0, help="Without one: all of the topic.")] = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Where nobody leads, any replica that is up: RECORDS MAY BE LOST.")
    ] = False,
    yes: YesOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Give partitions back to their preferred leaders, or a leader to partitions that have none."""
    if unclean and not yes:
        what = topic if partition is None else f"{topic}-{partition}"
        typer.echo(f"Where nobody leads {what}, a replica that may lack acknowledged records will.", err=True)
        typer.echo(
            "What it lacks is LOST, also when the other replicas come back. Bring one of them up instead.", err=True
        )
        typer.confirm("Elect all the same?", abort=True, err=True)
    with one_sentence_errors():
        body = {"topic": topic, "partition": partition, "unclean": unclean}
        elected = _client(server).cluster("elect", body)["elected"]
        names = ", ".join(f"{topic}-{number}" for number in elected)
        typer.echo(f"elected: {names}" if elected else "nothing to elect: the leaders are the right ones")


def add_node(
    member: Annotated[
        str, typer.Argument(metavar="NODE@HOST:PORT", help="As in --cluster, for example 4@10.0.0.4:9093.")
    ],
    voter: Annotated[bool, typer.Option("--voter", help="It takes part in decisions, once it has caught up.")] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Let a node join: it is then started with --join, and gets replicas by `reassign` and by new topics."""
    with one_sentence_errors():
        number, separator, address = member.partition("@")
        if not separator or not number.isdecimal():
            raise WrongClusterUsage(f'"{member}" is no node', hint="Write NODE@HOST:PORT, as 4@10.0.0.4:9093.")
        client = _client(server)
        client.cluster("add-node", {"node": int(number), "address": address})
        if voter:
            client.cluster("promote-node", {"node": int(number)})
        typer.echo(f"node {number} {'is a voter' if voter else 'may join'}")


def remove_node(node: Annotated[int, typer.Argument(min=1)], server: ServerOption = DEFAULT_SERVER) -> None:
    """Take a stopped node without replicas out of the cluster, for good."""
    with one_sentence_errors():
        client = _client(server)
        client.cluster("remove-node", {"node": node})
        typer.echo(f"node {node} is no part of the cluster any more")
        voters = [found for found in client.cluster()["nodes"] if found["role"] == "voter"]
        if len(voters) % 2 == 0:
            typer.echo(f"{len(voters)} voters bear the loss of no more nodes than {len(voters) - 1} do", err=True)


# What reassign does


def _proposal(
    client: HttpClient, topic: str | None, partition: int | None, to: str | None, empty: int | None, balance: bool
) -> Mapping[str, Any]:
    chosen = [topic is not None, empty is not None, balance]
    if chosen.count(True) != 1:
        hint = "Give TOPIC PARTITION --to NODES, --empty NODE or --balance."
        raise WrongClusterUsage("say what to move", hint=hint)
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


def _move(client: HttpClient, moves: list[Mapping[str, Any]], throttle: float | None, *, waits: bool) -> None:
    if not moves:
        typer.echo("nothing to move")
        return
    before = client.cluster()["throttle"]
    if throttle is not None:
        client.cluster("throttle", {"bytesPerSecond": max(1, int(throttle * _MEGA))})
    wanted = [{"topic": move["topic"], "partition": move["partition"], "replicas": move["after"]} for move in moves]
    client.cluster("reassign", {"moves": wanted})
    if not waits:
        kept = "" if throttle is None else "; the throttle stays until `millstream cluster throttle off`"
        typer.echo(f"{len(moves)} partitions begin to move{kept}")
        return
    names = {(move["topic"], move["partition"]) for move in moves}
    try:
        _wait_until_moved(client, lambda found: (found["topic"], found["partition"]) in names)
    finally:
        if throttle is not None:
            client.cluster("throttle", {"bytesPerSecond": before})
    typer.echo(f"{len(moves)} partitions moved")


def _wait_until_moved(client: HttpClient, is_ours: Callable[[Mapping[str, Any]], bool]) -> None:
    """Prints how far they are whenever that is news. A node that goes away meanwhile may come back."""
    from millstream.repl.text.cluster_text import moving_lines

    shown: list[str] = []
    while True:
        found = _status_if_any(client)
        if found is not None and found["controller"] is not None:
            moving = [partition for partition in found["partitions"] if partition["moving"] and is_ours(partition)]
            if not moving:
                return
            lines = moving_lines(moving)
            for line in lines:
                if line not in shown:
                    typer.echo(line)
            shown = lines
        time.sleep(_POLL_S)


# What is given


def _client(server: str) -> HttpClient:
    from millstream.server.client import HttpClient

    return HttpClient(server)


def _status_if_any(client: HttpClient) -> dict[str, Any] | None:
    from millstream.server.client import RemoteError, ServerUnreachable

    try:
        return client.cluster()
    except (RemoteError, ServerUnreachable):
        return None


def _status_when_well(client: HttpClient, seconds: float) -> dict[str, Any]:
    """As soon as all is well, or what it is then. Raises where nobody answers by then."""
    from millstream.repl.text.cluster_text import is_well

    deadline = time.monotonic() + seconds
    while True:
        found = _status_if_any(client)
        if found is not None and is_well(found):
            return found
        if time.monotonic() >= deadline:
            return client.cluster() if found is None else found
        time.sleep(_POLL_S)


def _refuse(*given: object, hint: str) -> None:
    if any(value is not None for value in given):
        raise WrongClusterUsage("flags that do not go together", hint=hint)


def _partition(partition: int | None) -> int:
    if partition is None:
        raise WrongClusterUsage("no partition is named", hint="Give TOPIC PARTITION, as `clicks 0`.")
    return partition


def _nodes(text: str | None) -> list[int]:
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if not parts or not all(part.isdecimal() for part in parts):
        raise WrongClusterUsage("no nodes are named to move to", hint="Give --to with their numbers, as --to 1,2,4.")
    return [int(part) for part in parts]


def _bytes(rate: str) -> int:
    try:
        megabytes = float(rate)
    except ValueError:
        megabytes = 0.0
    if not 0 < megabytes < 1e9:
        raise WrongClusterUsage(f'"{rate}" is no rate', hint="Give megabytes per second, as 20, or off.")
    return max(1, int(megabytes * _MEGA))
