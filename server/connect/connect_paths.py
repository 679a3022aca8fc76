"""The table of paths of Kafka Connect's REST API, like that of all other paths in `server/http/routes.py`."""

from __future__ import annotations

from typing import Any, Final

from ..http.path_doc import PathDoc


def _connect(path: str, method: Any, summary: str, answer: str = "Object", **more: Any) -> PathDoc:
    settings: dict[str, Any] = {"needs": "admin", **more}
    return PathDoc(path, method, summary, answer, tag="connect", error="ProxyError", **settings)


CONNECT_PATHS: Final = (
    _connect("/health", "get", "Whether connectors can be created, as Kafka Connect tells probes.", needs="nothing",
             statuses=(200, 503)),
    _connect("/connectors", "get", "Names of the connectors; `expand`: status or info, or both.", "Connectors"),
    _connect("/connectors", "post", "Creates a connector.", "Connector", body="NewConnector", statuses=(201,)),
    _connect("/connectors/{name}", "get", "A connector.", "Connector"),
    _connect("/connectors/{name}", "delete", "Drops a connector.", answer_types=(), statuses=(204,)),
    _connect("/connectors/{name}/config", "get", "Its settings, without secrets."),
    _connect("/connectors/{name}/config", "put", "Changes its settings, or creates it.", "Connector", body="Settings",
             statuses=(200, 201)),
    _connect("/connectors/{name}/config", "patch", "Changes some of its settings; null takes one away.", "Connector",
             body="Settings"),
    *(_connect(f"/connectors/{{name}}/{what}", "get", summary) for what, summary in (
        ("status", "Its state and that of its tasks."),
        ("topics", "The topics that its settings name."),
        ("offsets", "How far its tasks are."),
        ("tasks/{task}/status", "The state of a task."),
    )),
    _connect("/connectors/{name}/offsets", "patch", "Changes them, while it is stopped.", body="Object"),
    _connect("/connectors/{name}/offsets", "delete", "Forgets them, while it is stopped."),
    _connect("/connectors/{name}/topics/reset", "put", "Refused: its settings name its topics."),
    _connect("/connectors/{name}/stop", "put", "Ends its tasks, until it is resumed.", answer_types=(),
             statuses=(204,)),
    _connect("/connectors/{name}/tasks", "get", "Its tasks.", "Objects"),
    _connect("/connectors/{name}/pause", "put", "Pauses it, for restarts of the server too.", answer_types=(),
             statuses=(202,)),
    _connect("/connectors/{name}/resume", "put", "Resumes it.", answer_types=(), statuses=(202,)),
    _connect("/connectors/{name}/restart", "post", "Restarts its tasks; `onlyFailed`: none but those that failed.",
             answer_types=(), statuses=(202, 204)),
    _connect("/connectors/{name}/tasks/{task}/restart", "post", "Restarts a task that failed.", answer_types=(),
             statuses=(204,)),
    _connect("/admin/loggers", "get", "The loggers of this process with their levels."),
    _connect("/admin/loggers/{name}", "get", "A logger's level."),
    _connect("/admin/loggers/{name}", "put", "Changes it and those below: {level}; `scope=cluster`: without an answer.",
             "Strings", body="Object", statuses=(200, 204)),
    _connect("/connector-plugins", "get", "The connectors that can be created; `connectorsOnly=false`: the converters "
             "and transforms, too.", "Objects", needs="user"),
    _connect("/connector-plugins/{name}/config", "get", "The settings of one.", "Objects", needs="user"),
    _connect("/connector-plugins/{name}/config/validate", "put", "What is wrong with settings.", body="Settings",
             needs="user"),
)  # fmt: skip
