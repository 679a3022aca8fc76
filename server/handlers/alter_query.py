"""ALTER QUERY: changes where a query runs."""

from __future__ import annotations

from dataclasses import replace

from ...sql.ast import AlterQuery
from ...sql.settings.property_table import EXECUTOR
from ..catalog.commands import StartQuery
from ..engine.entities import CommandState, CurrentStatus, Entity
from ..engine.executors import chosen_executor
from ..engine.request import Request


def alter_query(statement: AlterQuery, request: Request) -> list[Entity]:
    """ALTER QUERY id SET EXECUTOR = '…': the query replaces itself, so it continues on the new executor from its
    committed offsets and its state, also after an error. This ends a backfill."""
    query = request.query(statement.query_id, statement.span)
    executor = EXECUTOR.check(statement.executor)
    plan = replace(query.plan, properties={**query.plan.properties, EXECUTOR.name: executor})
    chosen_executor(plan, request.server_properties)  # raises, before anything is written, if it cannot run the query
    moved = replace(query, plan=plan, backfill=None)
    command = StartQuery(query=moved, statement=statement.text, properties=dict(request.session.properties))
    offset = request.store.submit(command)
    return [
        CurrentStatus(
            statement_text=statement.text,
            command_id=f"query/{query.id}/alter",
            command_status=CommandState("SUCCESS", f"Executor of {query.id} set to {executor}.", query.id),
            command_sequence_number=offset,
        )
    ]
