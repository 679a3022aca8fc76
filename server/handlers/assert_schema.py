"""ASSERT SCHEMA: waits until a schema is in the registry (or gone), for scripts that need it."""

from __future__ import annotations

import time

from ...sql.ast import AssertSchema
from ..engine.entities import AssertedSchema, Entity
from ..engine.request import Request
from .assertions import TIMEOUT_MS, AssertionFailed

_PAUSE_S = 0.05


def assert_schema(statement: AssertSchema, request: Request) -> list[Entity]:
    """ASSERT [NOT EXISTS] SCHEMA [SUBJECT name] [ID number] [TIMEOUT …]. Raises `AssertionFailed`."""
    timeout_ms = TIMEOUT_MS if statement.timeout_ms is None else statement.timeout_ms
    deadline = time.monotonic() + timeout_ms / 1000
    while (problem := _problem(statement, request)) is not None:
        if time.monotonic() >= deadline:
            raise AssertionFailed(problem, span=statement.span)
        time.sleep(_PAUSE_S)
    subject, schema_id = statement.subject, statement.schema_id
    return [AssertedSchema(statement_text=statement.text, subject=subject, id=schema_id, exists=statement.exists)]


def _problem(statement: AssertSchema, request: Request) -> str | None:
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
