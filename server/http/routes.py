"""The table of all paths of the HTTP API: what each accepts and returns. The OpenAPI document, the metrics and the gate
use it; the code behind each path is in `app.py`."""

from __future__ import annotations

import re
from typing import Final, Literal

from ..connect.connect_paths import CONNECT_PATHS
from ..rest_proxy.proxy_paths import PROXY_PATHS
from .path_doc import PathDoc

_KSQL: Final = "application/vnd.ksql.v1+json"
_DELIMITED: Final = "application/vnd.ksqlapi.delimited.v1"
_ARROW: Final = "application/vnd.apache.arrow.stream"
_NDJSON: Final = "application/x-ndjson"
_ROWS: Final = (_DELIMITED, _KSQL, "application/json", _NDJSON, _ARROW, "text/plain")  # the last one is PRINT's

_SNAPSHOTS: Final[tuple[tuple[str, Literal["get", "post"], str, str], ...]] = (
    ("release", "post", "Object", "Lets the node go on, and says whether it was held until now."),
    ("remove", "post", "Object", "Removes the snapshot."),
    ("hashes", "get", "Object", "The SHA-256 of each chunk of a file: `path`."),
    ("chunk", "get", "Binary", "A chunk of a file: `path`, `number`."),
)

PATHS: Final = (
    PathDoc("/ksql", "post", "Runs statements, one after the other.", "Entities", "Statements",
            answer_types=("application/json", _KSQL), needs="statement", tag="statements"),
    PathDoc("/query", "post", "Runs one SELECT or PRINT and streams its rows.", "Rows", "Statements",
            answer_types=(_KSQL, *_ROWS), needs="statement", tag="queries"),
    PathDoc("/query-stream", "post", "As /query; a line with the columns, then a line per row.", "Rows", "Statement",
            answer_types=_ROWS, needs="statement", tag="queries"),
    PathDoc("/v1/reading", "post", "How a program reads the rows of a SELECT from one stream or table at the Kafka "
            "port; Spark's data source asks it.", "Reading", "ReadingRequest", needs="statement", tag="queries"),
    PathDoc("/close-query", "post", "Ends a push query.", "Object", "QueryId", tag="queries"),
    PathDoc("/queries/{id}/positions", "get", "How far a persistent query has read each partition of its sources; 404: "
            "there is no such query, or none that the user may see.", "QueryPositions", tag="queries"),
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
    PathDoc("/v1/subjects", "get", "The subjects of the schema registry.", tag="console"),
    PathDoc("/v1/subjects/{name}", "get", "The versions of a subject with their schemas.",
            needs="statement", tag="console"),
    PathDoc("/v1/complete", "post", "The keywords that may follow a text of SQL.", body="Object", tag="console"),
    PathDoc("/v1/access", "get", "Who asks and what they may do; for administrators all users.", tag="console"),
    PathDoc("/mcp", "post", "MCP (Model Context Protocol), where it is on: one JSON-RPC message.", "Object", "Object",
            tag="mcp", statuses=(200, 202)),
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
          ("upgrade", "Has the cluster use the newest version that all its nodes speak: {}."),
      )),
    PathDoc("/v1/snapshots", "get", "This node, and where the other nodes of its cluster answer.", needs="admin",
            tag="backup"),
    PathDoc("/v1/snapshots", "post", "Takes a snapshot of this node's log: {holdSeconds}.", body="Object",
            needs="admin", tag="backup"),
    *(PathDoc(f"/v1/snapshots/{{id}}/{name}", method, summary, needs="admin", tag="backup",
              body="Object" if method == "post" else None, answer=answer,
              answer_types=("application/octet-stream",) if answer == "Binary" else ("application/json",))
      for name, method, answer, summary in _SNAPSHOTS),
    *CONNECT_PATHS,
    PathDoc("/hooks/{name}", "post", "A delivery for a connector `webhook`, which checks the signature; answered once "
            "its records are committed.",
            body="Binary", body_types=("application/json", _NDJSON, "application/octet-stream"),
            needs="nothing", tag="connect"),
    PathDoc("/heartbeat", "post", "A heartbeat of a server.", "Ok", "Heartbeat", needs="admin", tag="cluster"),
    PathDoc("/lag", "post", "The lag of a server's state.", "Ok", "Lag", needs="admin", tag="cluster"),
    PathDoc("/ksql/terminate", "post", "Ends all queries and drops all streams and tables.", "Entities", "Terminate",
            needs="admin", tag="cluster"),
    *PROXY_PATHS,
)  # fmt: skip

OPEN_PATHS: Final = frozenset(doc.path for doc in PATHS if doc.needs == "nothing")
"""Paths that need no authentication."""

PROBES: Final = frozenset({"/livez", "/readyz", "/healthcheck", "/health", "/chc/live", "/chc/ready"})
"""Answered even beyond the limits of connections: a supervisor must not take a busy server for a dead one."""

_FIXED: Final = frozenset(doc.path for doc in PATHS if "{" not in doc.path)
_TEMPLATES: Final = tuple(
    (re.compile(re.sub(r"{\w+}", ".*", template), re.DOTALL), template)
    for template in sorted((doc.path for doc in PATHS if "{" in doc.path), key=len, reverse=True)
)  # the longest first: /v1/topics/{name}/records before /v1/topics/{name}


def route_of(path: str) -> str:
    """The path template in the table for a request's path.

    >>> [route_of(path) for path in ("/ksql", "/v1/topics/t/records", "/console/", "/nowhere")]
    ['/ksql', '/v1/topics/{name}/records', '/console/{file}', 'other']
    """
    if path in _FIXED:
        return path
    return next((template for pattern, template in _TEMPLATES if pattern.fullmatch(path)), "other")
