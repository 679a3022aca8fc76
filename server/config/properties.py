"""Checks properties from SET, the configuration and requests: finds them by name, and checks and normalizes their
values. All other code uses canonical names and text values. The entries are in `property_table.py`."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.errors import InvalidProperty, Span, did_you_mean

from ...sql.settings.property import Property, text, text_of
from ...sql.settings.property_table import PROPERTIES

_BY_ANY_NAME = {
    **{f"ksql.streams.{entry.name}": entry for entry in PROPERTIES.values() if not entry.name.startswith("ksql.")},
    **{alias: entry for entry in PROPERTIES.values() for alias in entry.aliases},
    **PROPERTIES,
}

_OPEN_PREFIXES = (
    "ksql.functions.",
    "ksql.heartbeat.",
    "ksql.plugins.rocksdb.",
    "ksql.schema.registry.",
    "ksql.streams.consumer.",
    "ksql.streams.producer.",
    "ksql.streams.topic.",
    "spark.",
)
"""Names with these prefixes are not checked: settings of functions, of Kafka's clients, of Spark, and of features that
do not exist here: ksqlDB's heartbeats, RocksDB, and an external schema registry."""

_USERS = "Users and their rights are set below [access] in the server's configuration."
_CONNECTORS = "Connectors run in this server and need no workers; ksql.connect.url names a Kafka Connect cluster."
_ACCESS_LOG = "Each request is a line of the server's log; its level is `log_level` in the server's configuration."
_MIGRATIONS = "It belongs into the file of `millstream migrations`."
_ELSEWHERE = {
    "authentication.": _USERS,
    "ksql.auth.basic.": _USERS,
    "ksql.connect.plugin.path": _CONNECTORS,
    "ksql.connect.worker.config": _CONNECTORS,
    "ksql.endpoint.logging.": _ACCESS_LOG,
    "ksql.hidden.topics": "SHOW TOPICS leaves out the topics whose names begin with an underscore.",
    "ksql.idle.connection.timeout.seconds": "The connection of a push query stays open while nothing comes.",
    "ksql.internal.listener": "Nodes talk to each other at the addresses of `cluster` in the server's configuration.",
    "ksql.logging.processing.stream.name": "The stream's name is always KSQL_PROCESSING_LOG.",
    "ksql.logging.processing.topic.name": "The topic's name is always default_ksql_processing_log.",
    "ksql.migrations.": _MIGRATIONS,
    "ksql.queries.file": "Give the statements to a running server: millstream sql --server URL -f FILE.",
    "response.http.headers.config": "A proxy in front of the server can add headers.",
}
"""Properties of ksqlDB, or prefixes of them, that would be missed if they had no effect, with a hint to the
alternative."""


def find_property(name: str, span: Span | None = None) -> Property[object]:
    """The entry of this name or alias. Raises `InvalidProperty`."""
    found = _BY_ANY_NAME.get(name)
    if found is not None:
        return found
    if name.startswith(_OPEN_PREFIXES):
        scope = "SERVER" if name.startswith("spark.") else "SESSION"  # some settings of Spark allow SQL to read files
        return text(name, "", "A setting of a function, a client or Spark.", effective=False, scope=scope)
    elsewhere = next((hint for start, hint in _ELSEWHERE.items() if name == start or _below(name, start)), None)
    if elsewhere is not None:
        raise InvalidProperty(f"ksqlDB's property '{name}' does not exist here.", span=span, hint=elsewhere)
    raise InvalidProperty(
        f"Not recognizable as a property of Millstream, ksqlDB or Kafka: '{name}'.",
        span=span,
        hint=did_you_mean(name, _BY_ANY_NAME),
    )


def _below(name: str, group: str) -> bool:
    return group.endswith(".") and name.startswith(group)


def settable_property(name: str, span: Span | None = None) -> Property[object]:
    """The entry, if a session may set it. Raises `InvalidProperty`."""
    found = find_property(name, span)
    if found.scope == "SERVER":
        raise InvalidProperty(
            f"Cannot set property '{found.name}': it is a server property.",
            span=span,
            hint="Set it in the server's configuration and start the server again.",
        )
    return found


def checked_properties(given: Mapping[str, object]) -> dict[str, str]:
    """The properties of a configuration or a request, under canonical names. Raises `InvalidProperty`."""
    checked: dict[str, str] = {}
    for name, value in given.items():
        entry = find_property(name)
        checked[entry.name] = entry.check(text_of(value))
    return checked


def lenient_properties(given: Mapping[str, object]) -> dict[str, str]:
    """As `checked_properties`, but unknown names are kept: for conformance runs, which set many."""
    checked: dict[str, str] = {}
    for name, value in given.items():
        entry = _BY_ANY_NAME.get(name)
        checked[entry.name if entry else name] = entry.check(text_of(value)) if entry else text_of(value)
    return checked
