"""ASSERT TOPIC and ASSERT SCHEMA: wait until a topic or a schema exists (or no longer exists), for scripts."""

from __future__ import annotations

import time
from collections.abc import Callable

from millstream.errors import ServerError

from ...executor.answers.pull_limits import client_is_gone
from ...sql.ast import AssertSchema, AssertTopic
from ..engine.entities import AssertedSchema, AssertedTopic, Entity
from ..engine.request import Request

_PAUSE_S = 0.05
_PAUSE_S_MAX = 0.5  # many statements may wait, for days
_KNOWN = ("PARTITIONS", "REPLICAS")


class AssertionFailed(ServerError):
    """The condition of an ASSERT statement is false."""

    code = "ASSERTION_FAILED"


def assert_topic(statement: AssertTopic, request: Request) -> list[Entity]:
    """ASSERT [NOT EXISTS] TOPIC name [WITH (PARTITIONS=…, REPLICAS=…)] [TIMEOUT …]. Raises `AssertionFailed`."""
    _wait(statement, request.server.assert_topic_ms, lambda: _problem_of_topic(statement, request))
    return [AssertedTopic(statement_text=statement.text, topic_name=statement.topic, exists=statement.exists)]


def assert_schema(statement: AssertSchema, request: Request) -> list[Entity]:
    """ASSERT [NOT EXISTS] SCHEMA [SUBJECT name] [ID number] [TIMEOUT …]. Raises `AssertionFailed`."""
    _wait(statement, request.server.assert_schema_ms, lambda: _problem_of_schema(statement, request))
    subject, schema_id = statement.subject, statement.schema_id
    return [AssertedSchema(statement_text=statement.text, subject=subject, id=schema_id, exists=statement.exists)]


def _wait(statement: AssertTopic | AssertSchema, default_ms: int, problem: Callable[[], str | None]) -> None:
    """Waits until there is no problem. Raises `AssertionFailed` after the timeout, or if the client is gone."""
    timeout_ms = default_ms if statement.timeout_ms is None else statement.timeout_ms
    deadline = time.monotonic() + timeout_ms / 1000
    pause_s = _PAUSE_S
    while (found := problem()) is not None:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or client_is_gone():
            raise AssertionFailed(found, span=statement.span)
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)


def _problem_of_topic(statement: AssertTopic, request: Request) -> str | None:
    topic = request.log.topic(statement.topic)
    if not statement.exists:
        return None if topic is None else f"Topic {statement.topic} exists"
    if topic is None:
        return f"Topic {statement.topic} does not exist"
    actual = {"PARTITIONS": topic.partition_count, "REPLICAS": topic.replication_factor}
    for name, wanted in statement.properties.items():
        if name not in _KNOWN:
            return f"Cannot assert unknown topic property: {name}"
        if str(actual[name]) != str(wanted):
            wrong = f"For config {name.lower()}, expected {wanted} got {actual[name]}"
            return f"Mismatched configuration for topic {statement.topic}: {wrong}"
    return None


def _problem_of_schema(statement: AssertSchema, request: Request) -> str | None:
    subject, schema_id = statement.subject, statement.schema_id
    found = any(
        not version.deleted
        and request.session.rights.sees_subject(version.subject)
        and subject in (None, version.subject)
        and schema_id in (None, version.id)
        for version in request.schemas.registry.versions.values()
    )
    if found == statement.exists:
        return None
    named = [f"subject name {subject}"] if subject is not None else []
    named += [f"id {schema_id}"] if schema_id is not None else []
    return f"Schema with {' and '.join(named)} {'exists' if found else 'does not exist'}"
