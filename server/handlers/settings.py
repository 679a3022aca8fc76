"""SET, UNSET, DEFINE and UNDEFINE: they change the session and return no entities."""

from __future__ import annotations

from millstream.errors import InvalidStatement, did_you_mean

from ...sql.ast import DefineVariable, SetProperty, UndefineVariable, UnsetProperty
from ...sql.variables import VARIABLE_NAME
from ..config.denied_properties import refuse_denied
from ..config.properties import settable_property
from ..engine.entities import Entity, Warned
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
    properties = request.session.properties
    if properties.pop(entry.name, None) is None:
        why = f"Property '{entry.name}' is not set in this session"
        return [_warned(statement.text, why, did_you_mean(entry.name, properties))]
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
    session = request.session
    if not session.undefine(statement.name):
        why = f"Cannot undefine variable '{statement.name}' which was never defined"
        return [_warned(statement.text, why, did_you_mean(statement.name, session.variables))]
    return []


def _warned(text: str, why: str, hint: str | None) -> Entity:
    return Warned(statement_text=text, message=f"{why}." if hint is None else f"{why}. {hint}")
