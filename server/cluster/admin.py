"""/cluster and the routes below it: the state of the cluster, and its administration. Every node answers.

A single server refuses all of them, and the error says how to start a cluster.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...logcore.cluster.moves import Move, bytes_of
from ...logcore.cluster.operations import NoController, OperationRefused, Operations
from ...logcore.cluster.status import ClusterStatus
from ...logcore.replication.machine import NodeId
from ..catalog.command_topic import COMMAND_TOPIC
from ..engine.entities import camel_case
from ..http.context import Workers, rights_of
from ..http.errors import BAD_REQUEST, BAD_STATEMENT, NOT_READY, RequestRefused
from ..http.requests import read_object
from ..http.statements import error_response, json_response
from ..security.rights import Rights

_MOVES_MAX: Final = 10_000

Act = Callable[[Operations, Mapping[str, Any]], dict[str, Any]]


def cluster_routes(operations: Operations | None, workers: Workers, body_bytes_max: int) -> list[Route]:
    """In: `operations`: None if this server is not part of a cluster."""

    def read(answer: Callable[[Operations, Rights], dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            try:
                found, rights = _of_a_cluster(operations), rights_of(request.scope)
                return json_response(await workers.run(lambda: answer(found, rights)), 200)
            except Exception as error:
                return error_response(_told(error))

        return route

    def write(act: Act) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            try:
                rights_of(request.scope).require_administrator()
                body = await read_object(request, body_bytes_max)
                found = _of_a_cluster(operations)
                return json_response(await workers.run(lambda: act(found, body)), 200)
            except Exception as error:
                return error_response(_told(error))

        return route

    return [
        Route("/cluster", read(lambda operations, rights: _status(operations.status(), rights))),
        Route("/cluster/plan", write(_plan), methods=["POST"]),
        Route("/cluster/reassign", write(_reassign), methods=["POST"]),
        Route("/cluster/cancel", write(_cancel), methods=["POST"]),
        Route("/cluster/throttle", write(_throttle), methods=["POST"]),
        Route("/cluster/elect", write(_elect), methods=["POST"]),
        Route("/cluster/add-node", write(_add_node), methods=["POST"]),
        Route("/cluster/promote-node", write(_promote_node), methods=["POST"]),
        Route("/cluster/demote-node", write(_demote_node), methods=["POST"]),
        Route("/cluster/replication", write(_replication), methods=["POST"]),
        Route("/cluster/remove-node", write(_remove_node), methods=["POST"]),
        Route("/cluster/upgrade", write(_upgrade), methods=["POST"]),
    ]


def _of_a_cluster(operations: Operations | None) -> Operations:
    if operations is None:
        hint = "Start it with --node and --cluster to make it a node of one."
        raise RequestRefused(BAD_REQUEST, "this server is a single node and not part of a cluster", hint=hint)
    return operations


def _told(error: Exception) -> Exception:
    """The error that the API answers: an operation that is refused is the client's error, a cluster without a
    controller is not."""
    match error:
        case OperationRefused():
            return RequestRefused(BAD_STATEMENT, error.message, hint=error.hint)
        case NoController():
            return RequestRefused(NOT_READY, error.message, hint=error.hint)
        case _:
            return error


# The answers


def _status(status: ClusterStatus, rights: Rights) -> dict[str, Any]:
    """`engine`: the node that runs the engine or is about to; everybody sees it."""
    leaders = (each.leader for each in status.partitions if each.topic == COMMAND_TOPIC)
    return status_json(_seen(status, rights)) | {"engine": next(leaders, None)}


def _seen(status: ClusterStatus, rights: Rights) -> ClusterStatus:
    partitions = tuple(each for each in status.partitions if rights.everything or rights.sees_topic(each.topic))
    return replace(status, partitions=partitions)


def status_json(status: ClusterStatus) -> dict[str, Any]:
    """The status as JSON. `partitions` also contain what follows from their replicas, so that clients need not know the
    rules."""
    content = _with_json_names(asdict(status))
    for partition, found in zip(status.partitions, content["partitions"], strict=True):
        found["offline"] = partition.offline
        found["underMinInSync"] = partition.under_min_in_sync
        found["moving"] = partition.moving
        found["preferredLeads"] = partition.preferred_leads
    return content


def _with_json_names(value: Any) -> Any:
    """
    >>> _with_json_names({"metadata_lag": ({"heard_ms_ago": 1},)})
    {'metadataLag': [{'heardMsAgo': 1}]}
    """
    if isinstance(value, dict):
        return {camel_case(name): _with_json_names(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_json_names(item) for item in value]
    return value


def _moves_json(moves: Sequence[Move]) -> dict[str, Any]:
    return {"moves": [_with_json_names(asdict(move)) for move in moves], "bytes": bytes_of(moves)}


# The actions


def _plan(operations: Operations, body: Mapping[str, Any]) -> dict[str, Any]:
    """{"empty": node}, {"balance": true} or {"factor": number, "topic": optional name}: a plan; nothing is moved."""
    if "factor" in body:
        return _moves_json(operations.plan_to_replicate(*_factor(body)))
    if "empty" in body:
        return _moves_json(operations.plan_to_empty(_node(body, "empty")))
    if body.get("balance") is True:
        return _moves_json(operations.plan_to_balance())
    raise RequestRefused(BAD_REQUEST, 'the body needs a node under "empty", a "factor", or "balance": true')


def _reassign(operations: Operations, body: Mapping[str, Any]) -> dict[str, Any]:
    """{"moves": [{topic, partition, replicas}]}: starts all moves; /cluster shows their progress."""
    moves = body.get("moves")
    if not isinstance(moves, list) or not moves or len(moves) > _MOVES_MAX:
        raise RequestRefused(BAD_REQUEST, f'the body needs a list of 1 to {_MOVES_MAX} moves under "moves"')
    checked = [(_text(move, "topic"), _number(move, "partition"), _replicas(move)) for move in map(_object, moves)]
    for topic, partition, replicas in checked:
        operations.reassign(topic, partition, replicas)
    return {"begun": len(checked)}


def _cancel(operations: Operations, body: Mapping[str, Any]) -> dict[str, Any]:
    """{"topic", "partition"}, or {} for all running moves."""
    if not body:
        return {"calledOff": operations.call_off_all()}
    operations.reassign(_text(body, "topic"), _number(body, "partition"), None)
    return {"calledOff": 1}


def _throttle(operations: Operations, body: Mapping[str, Any]) -> dict[str, Any]:
    """{"bytesPerSecond": number or null}."""
    rate = None if body.get("bytesPerSecond", 0) is None else _number(body, "bytesPerSecond")
    operations.throttle(rate)
    return {"bytesPerSecond": rate}


def _elect(operations: Operations, body: Mapping[str, Any]) -> dict[str, Any]:
    """{"topic", "partition": optional number, default all, "unclean": optional true}."""
    partition = _number(body, "partition") if body.get("partition") is not None else None
    elected = operations.elect(_text(body, "topic"), partition, unclean=body.get("unclean") is True)
    return {"elected": elected}


def _add_node(operations: Operations, body: Mapping[str, Any]) -> dict[str, Any]:
    """{"node": number, "address": "host:port"}."""
    operations.add_node(_node(body, "node"), _text(body, "address"))
    return {}


def _promote_node(operations: Operations, body: Mapping[str, Any]) -> dict[str, Any]:
    """{"node": number}: a learner becomes a voter."""
    operations.promote(_node(body, "node"))
    return {}


def _demote_node(operations: Operations, body: Mapping[str, Any]) -> dict[str, Any]:
    """{"node": number}: a voter becomes a learner."""
    operations.demote(_node(body, "node"))
    return {}


def _replication(operations: Operations, body: Mapping[str, Any]) -> dict[str, Any]:
    """{"factor": number, "topic": optional name, default all}: returns the moves that start; /cluster shows their
    progress."""
    return _moves_json(operations.replicate(*_factor(body)))


def _remove_node(operations: Operations, body: Mapping[str, Any]) -> dict[str, Any]:
    """{"node": number}."""
    operations.remove_node(_node(body, "node"))
    return {}


def _upgrade(operations: Operations, body: Mapping[str, Any]) -> dict[str, Any]:
    """{}: the cluster switches to the newest version that this node supports."""
    return {"version": operations.raise_version()}


# The request


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RequestRefused(BAD_REQUEST, "a move is an object with topic, partition and replicas")
    return value


def _text(body: Mapping[str, Any], member: str) -> str:
    value = body.get(member)
    if not isinstance(value, str):
        raise RequestRefused(BAD_REQUEST, f'the body needs a text under "{member}"')
    return value


def _number(body: Mapping[str, Any], member: str) -> int:
    value = body.get(member)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RequestRefused(BAD_REQUEST, f'the body needs a non-negative integer under "{member}"')
    return value


def _factor(body: Mapping[str, Any]) -> tuple[int, str | None]:
    return _number(body, "factor"), None if body.get("topic") is None else _text(body, "topic")


def _node(body: Mapping[str, Any], member: str) -> NodeId:
    return NodeId(_number(body, member))


def _replicas(move: Mapping[str, Any]) -> list[NodeId]:
    replicas = move.get("replicas")
    if not isinstance(replicas, list) or not replicas or any(type(node) is not int for node in replicas):
        raise RequestRefused(BAD_REQUEST, 'a move needs a list of nodes under "replicas"')
    return [NodeId(node) for node in replicas]
