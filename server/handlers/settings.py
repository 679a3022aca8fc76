"""SET, UNSET, DEFINE and UNDEFINE: they change the session and return no entities."""

from __future__ import annotations

from millstream.errors import InvalidProperty, InvalidStatement, did_you_mean

from ...sql.ast import DefineVariable, SetProperty, UndefineVariable, UnsetProperty
from ...sql.variables import VARIABLE_NAME
from ..config.denied_properties import refuse_denied
from ..config.properties import settable_property
from ..engine.entities import Entity
from ..engine.request import Request


def set_property(statement: SetProperty, request: Request) -> list[Entity]:
    """SET 'name'='value'."""
    entry = settable_property(statement.name, statement.span)
    refuse_denied(entry.name, request.server.denied, statement.span)
    request.session.properties[entry.name] = entry.check(statement.value, statement.span)
    return []


def unset_property(statement: UnsetProperty, request: Request) -> list[Entity]:
    """UNSET 'name': the server's value applies again."""
    entry = settable_property(statement.name, statement.span)
    if entry.name not in request.session.properties:
        raise InvalidProperty(
            f"Cannot unset property '{entry.name}': it is not set in this session.",
            span=statement.span,
            hint=did_you_mean(entry.name, request.session.properties),
        )
    del request.session.properties[entry.name]
    return []


def define_variable(statement: DefineVariable, request: Request) -> list[Entity]:
    """DEFINE name = 'value'."""
    if not VARIABLE_NAME.fullmatch(statement.name):
        raise InvalidStatement(
            f"'{statement.name}' is not a name for a variable.",
            span=statement.span,
            hint="It starts with a letter or an underscore, followed by letters, digits and underscores.",
        )
    request.session.define(statement.name, statement.value)
    return []


def undefine_variable(statement: UndefineVariable, request: Request) -> list[Entity]:
    """UNDEFINE name."""
    if not request.session.undefine(statement.name):
        raise InvalidStatement(
            f"Cannot undefine variable '{statement.name}': it was never defined.",
            span=statement.span,
            hint=did_you_mean(statement.name, request.session.variables),
        )
    return []
