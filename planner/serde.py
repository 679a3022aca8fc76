"""Plans and sources as JSON, for the command topic and for Spark's tasks.

A record becomes an object with its class under "@" and its fields by name. Fields that a later version added are absent
and get their defaults. Fields marked as `ADDED` are left out while they have their defaults, so that nodes of the last
release, which does not know them, can read the plan during a rolling upgrade. A plan's object also contains the users'
functions that it calls, as they were when planned.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
from collections.abc import Mapping
from typing import Any

from millstream.errors import StatementError

from ..sql import types
from ..sql.functions.users import user_functions
from ..sql.functions.users.user_functions import remember_functions
from . import physical, schema, source_info, source_reading, specs, steps
from .expressions.user_functions import functions_of
from .physical import PLAN_VERSION, PhysicalPlan
from .source_info import SourceInfo
from .source_reading import SourceReading
from .specs import ADDED

_STEPS = [importlib.import_module(f"{steps.__name__}.{each.name}") for each in pkgutil.iter_modules(steps.__path__)]
_CLASSES: dict[str, type] = {
    found.__name__: found
    for module in (types, schema, specs, source_info, source_reading, physical, user_functions, *_STEPS)
    for found in vars(module).values()
    if isinstance(found, type) and dataclasses.is_dataclass(found) and found.__module__ == module.__name__
}


class PlanVersion(StatementError):
    """A stored plan comes from a newer version."""

    code = "PLAN_VERSION"


def plan_to_json(plan: PhysicalPlan) -> str:
    """The plan as JSON text; `plan_from_json` returns an equal plan."""
    record = _encode(plan)
    functions = functions_of(plan.root)
    if functions:
        record["functions"] = _encode(functions)
    return json.dumps(record, separators=(",", ":"))


def plan_from_json(text: str) -> PhysicalPlan:
    """Raises `PlanVersion` for a plan of a newer version."""
    record = json.loads(text)
    remember_functions(_decode(record.pop("functions", [])))
    plan = _decode(record)
    assert isinstance(plan, PhysicalPlan), "the text was made by plan_to_json"
    if plan.version > PLAN_VERSION:
        raise PlanVersion(
            f"the stored plan of {plan.query_id} has version {plan.version}, this version of Millstream reads up to "
            f"{PLAN_VERSION}",
            hint="Start the newer version again.",
        )
    return plan


def function_to_json(function: user_functions.UserFunction) -> str:
    return json.dumps(_encode(function), separators=(",", ":"))


def function_from_json(text: str) -> user_functions.UserFunction:
    function = _decode(json.loads(text))
    assert isinstance(function, user_functions.UserFunction), "the text was made by function_to_json"
    return function


def source_to_json(source: SourceInfo) -> str:
    return json.dumps(_encode(source), separators=(",", ":"))


def source_from_json(text: str) -> SourceInfo:
    source = _decode(json.loads(text))
    assert isinstance(source, SourceInfo), "the text was made by source_to_json"
    return source


def reading_to_json(reading: SourceReading) -> str:
    return json.dumps(_encode(reading), separators=(",", ":"))


def reading_from_json(text: str) -> SourceReading:
    """Raises `PlanVersion` if the text contains classes or fields that this version of Millstream does not know."""
    try:
        reading = _decode(json.loads(text))
    except (KeyError, TypeError) as error:
        raise PlanVersion(
            f"the server describes the source in words that this version of Millstream does not know: {error}",
            hint="Install the version of Millstream that the server has.",
        ) from error
    assert isinstance(reading, SourceReading), "the text was made by reading_to_json"
    return reading


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            f.name: _encode(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if f.init and not (ADDED.items() <= f.metadata.items() and getattr(value, f.name) == f.default)
        }
        return {"@": type(value).__name__, **fields}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, Mapping):
        return {"@": "map", "entries": {str(k): _encode(v) for k, v in value.items()}}
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(item) for item in value)
    if not isinstance(value, dict):
        return value
    kind = value["@"]
    if kind == "map":
        return {k: _decode(v) for k, v in value["entries"].items()}
    return _CLASSES[kind](**{k: _decode(v) for k, v in value.items() if k != "@"})
