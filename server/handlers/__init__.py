"""One handler for each class of statement. A handler returns entities; changes go through the catalog store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...sql import ast
from ..engine.entities import Entity
from ..engine.request import Request
from .alter import alter_source
from .alter_query import alter_query
from .assert_source import assert_source
from .assert_values import assert_values
from .assertions import assert_schema, assert_topic
from .connectors import resnapshot
from .control import control_query
from .create import create_as_select, create_source, insert_into
from .delete_rows import delete_rows
from .describe import describe, explain
from .drop import drop_source
from .forwarded_connectors import alter_connector, control_connector, create_connector, drop_connector
from .from_connector import create_from_connector
from .functions import create_function, drop_function
from .insert_values import insert_values
from .insight import show_graph, show_lineage
from .mirrors import control_mirror, create_mirror
from .places import in_its_place
from .secrets import create_secret, drop_secret
from .settings import define_variable, set_property, undefine_variable, unset_property
from .show import show
from .types import create_type, drop_type
from .unsupported import alter_system, run_script, streaming

Handler = Callable[[Any, Request], list[Entity]]

HANDLERS: Mapping[type[ast.Statement], Handler] = {
    ast.Query: streaming,
    ast.CreateSource: create_source,
    ast.CreateAsSelect: create_as_select,
    ast.InsertInto: insert_into,
    ast.InsertValues: insert_values,
    ast.DeleteRows: delete_rows,
    ast.DropSource: drop_source,
    ast.AlterSource: alter_source,
    ast.AlterQuery: alter_query,
    ast.CreateType: create_type,
    ast.DropType: drop_type,
    ast.CreateFunction: create_function,
    ast.DropFunction: drop_function,
    ast.CreateSecret: create_secret,
    ast.DropSecret: drop_secret,
    ast.CreateFromConnector: create_from_connector,
    ast.CreateConnector: create_connector,
    ast.DropConnector: drop_connector,
    ast.AlterConnector: alter_connector,
    ast.ControlConnector: control_connector,
    ast.Resnapshot: resnapshot,
    ast.CreateMirror: create_mirror,
    ast.ControlMirror: control_mirror,
    ast.Show: show,
    ast.ShowLineage: show_lineage,
    ast.ShowGraph: show_graph,
    ast.Describe: describe,
    ast.Explain: explain,
    ast.PrintTopic: streaming,
    ast.ControlQuery: control_query,
    ast.SetProperty: set_property,
    ast.UnsetProperty: unset_property,
    ast.AlterSystem: alter_system,
    ast.DefineVariable: define_variable,
    ast.UndefineVariable: undefine_variable,
    ast.RunScript: run_script,
    ast.AssertTopic: assert_topic,
    ast.AssertSchema: assert_schema,
    ast.AssertValues: assert_values,
    ast.AssertSource: assert_source,
}


def handle(statement: ast.Statement, request: Request) -> list[Entity]:
    """Runs the statement."""
    with in_its_place(statement):
        return HANDLERS[type(statement)](request.bound(statement), request)
