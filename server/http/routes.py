"""The paths of the HTTP API in one table: what each takes and gives. The OpenAPI document, the metrics and the gate
read it; the code behind each path is in `app.py`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Needs = Literal["nothing", "user", "statement", "insert", "admin"]


@dataclass(frozen=True, slots=True)
class PathDoc:
    """`body`, `answer`: names in `http_openapi.SCHEMAS`. `statuses`: that an answer of that shape has. `needs`: what a
    user must have, where there are users."""

    path: str
    method: Literal["get", "post"]
    summary: str
    answer: str = "Object"
    body: str | None = None
    body_types: tuple[str, ...] = ("application/json",)
    answer_types: tuple[str, ...] = ("application/json",)
    needs: Needs = "user"
    tag: str = "server"
    statuses: tuple[int, ...] = (200,)


_KSQL: Final = "application/vnd.ksql.v1+json"
_DELIMITED: Final = "application/vnd.ksqlapi.delimited.v1"
_ARROW: Final = "application/vnd.apache.arrow.stream"
_NDJSON: Final = "application/x-ndjson"
_ROWS: Final = (_DELIMITED, _KSQL, "application/json", _NDJSON, _ARROW, "text/plain")  # the last one is PRINT's

PATHS: Final = (
    PathDoc("/ksql", "post", "Runs statements, one after the other.", "Entities", "Statements",
            answer_types=("application/json", _KSQL), needs="statement", tag="statements"),
    PathDoc("/query", "post", "Runs one SELECT or PRINT and streams its rows.", "Rows", "Statements",
            answer_types=(_KSQL, *_ROWS), needs="statement", tag="queries"),
    PathDoc("/query-stream", "post", "As /query; a line with the columns, then a line per row.", "Rows", "Statement",
            answer_types=_ROWS, needs="statement", tag="queries"),
    PathDoc("/close-query", "post", "Ends a push query.", "Object", "QueryId", tag="queries"),
    PathDoc("/inserts-stream", "post", "A line that names the target, then a row per line; each is acknowledged.",
            "Acknowledgements", "InsertLines", (_DELIMITED, "application/json"), (_DELIMITED, "application/json"),
            needs="insert", tag="inserts"),
    PathDoc("/v1/sources/{name}/rows", "post", "Appends the rows of an Arrow IPC stream, all or none.", "RowCount",
            "Binary", (_ARROW,), needs="insert", tag="inserts"),
    PathDoc("/ws/query", "get", "A web socket: the columns, then a message per row. `request`: as for /query.", "Rows",
            needs="statement", tag="queries", statuses=(101,)),
    PathDoc("/", "get", "Leads to /info, and browsers to /console/.", needs="nothing", answer_types=(),
            statuses=(303, 308)),
    PathDoc("/console", "get", "Leads to /console/.", needs="nothing", answer_types=(), statuses=(308,), tag="console"),
    PathDoc("/console/{file}", "get", "The files of the web console.", "Text", needs="nothing", tag="console",
            answer_types=("text/html", "text/javascript", "text/css", "image/svg+xml")),
    PathDoc("/v1/topics/{name}", "get", "The partitions and settings of a topic.", needs="statement", tag="console"),
    PathDoc("/v1/topics/{name}/records", "get", "Records of a topic: `partition`; `offset` or `time` (ms), else the "
            "newest ones; `limit`, `contains`, `latest` (of each key), `whole` (long texts are not cut).",
            needs="statement", tag="console"),
    PathDoc("/v1/complete", "post", "The keywords that may follow a text of SQL.", body="Object", tag="console"),
    PathDoc("/v1/access", "get", "Who asks and what they may do; for administrators all users.", tag="console"),
    PathDoc("/info", "get", "Version and identity of the server.", "ServerInfo", needs="nothing"),
    PathDoc("/healthcheck", "get", "Whether statements can run.", "Health", needs="nothing", statuses=(200, 503)),
    PathDoc("/chc/live", "get", "Liveness.", needs="nothing"),
    PathDoc("/chc/ready", "get", "Readiness.", needs="nothing", statuses=(200, 503)),
    PathDoc("/livez", "get", "Liveness.", needs="nothing"),
    PathDoc("/readyz", "get", "Readiness.", needs="nothing", statuses=(200, 503)),
    PathDoc("/metrics", "get", "For Prometheus; `name[]`: only the families of these names.", "Text",
            answer_types=("text/plain",)),
    PathDoc("/graph", "get", "The graph of streams, tables and queries: `format` is text, dot, svg, json or layout "
            "(json with the places of nodes and edges); `of` names one of them.", "Graph",
            answer_types=("text/plain", "text/vnd.graphviz", "image/svg+xml", "application/json")),
    PathDoc("/openapi.json", "get", "This document.", needs="nothing"),
    PathDoc("/v1/metadata", "get", "Version and clusters.", needs="nothing"),
    PathDoc("/v1/metadata/id", "get", "The clusters.", needs="nothing"),
    PathDoc("/is_valid_property/{name}", "get", "Whether a session may set the property.", "Boolean"),
    PathDoc("/status", "get", "The commands that built the catalog.", "CommandStatuses"),
    PathDoc("/status/{type}/{entity}/{action}", "get", "One command.", "CommandStatus"),
    PathDoc("/clusterStatus", "get", "The servers, their queries and the queries' progress."),
    PathDoc("/cluster", "get", "The nodes of the cluster, the controller, and each partition's state.", tag="cluster"),
    *(PathDoc(f"/cluster/{name}", "post", summary, needs="admin", body="Object", tag="cluster")
      for name, summary in (
          ("plan", "Proposes moves: {empty: node}, {balance: true} or {factor, topic}."),
          ("reassign", "Starts to move partitions: {moves: [{topic, partition, replicas}]}."),
          ("cancel", "Cancels a move, {topic, partition}, or all, {}."),
          ("replication", "Changes the replication factor of a topic, {factor, topic}, or of all topics, {factor}."),
          ("throttle", "Limits replicas that catch up, per node: {bytesPerSecond}; null: no limit."),
          ("elect", "Elects the preferred replicas: {topic, partition, unclean}."),
          ("add-node", "Adds a node: {node, address}."),
          ("promote-node", "Makes a learner a voter: {node}."),
          ("demote-node", "Makes a voter a learner: {node}."),
          ("remove-node", "Removes a stopped node without replicas: {node}."),
      )),
    PathDoc("/heartbeat", "post", "A heartbeat of a server.", "Ok", "Heartbeat", needs="admin", tag="cluster"),
    PathDoc("/lag", "post", "The lag of a server's state.", "Ok", "Lag", needs="admin", tag="cluster"),
    PathDoc("/ksql/terminate", "post", "Ends all queries and drops all streams and tables.", "Entities", "Terminate",
            needs="admin", tag="cluster"),
)  # fmt: skip

OPEN_PATHS: Final = frozenset(doc.path for doc in PATHS if doc.needs == "nothing")
"""What nobody needs to log in for."""

PROBES: Final = frozenset({"/livez", "/readyz", "/healthcheck", "/chc/live", "/chc/ready"})
"""Answered however many connections are open: what restarts dead servers must not take a busy one for dead."""

_FIXED: Final = frozenset(doc.path for doc in PATHS if "{" not in doc.path)
_TEMPLATES: Final = tuple(
    (re.compile(re.sub(r"{\w+}", ".*", template), re.DOTALL), template)
    for template in sorted((doc.path for doc in PATHS if "{" in doc.path), key=len, reverse=True)
)  # the longest first: /v1/topics/{name}/records before /v1/topics/{name}


def route_of(path: str) -> str:
    """The path of the table that a request's path belongs to.

    >>> [route_of(path) for path in ("/ksql", "/v1/topics/t/records", "/console/", "/nowhere")]
    ['/ksql', '/v1/topics/{name}/records', '/console/{file}', 'other']
    """
    if path in _FIXED:
        return path
    return next((template for pattern, template in _TEMPLATES if pattern.fullmatch(path)), "other")
