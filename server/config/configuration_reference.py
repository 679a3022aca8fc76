"""Every setting and property with its type, unit, default and meaning, read from the declarations: the fields of
`Configuration` and the entries of `property_table.py`. The reference manual is generated from it."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from ...sql.settings.property import Property
from ...sql.settings.property_table import PROPERTIES
from .configuration import Configuration, ListenAddress

_UNITS: Final = (
    ("ms", "milliseconds"), ("minutes", "minutes"), ("seconds", "seconds"), ("bytes", "bytes"), ("rows", "rows"),
    ("records", "records"),
)  # fmt: skip
_PROPERTIES: Final = (
    "Below `[properties]` in the file. A session can SET its SESSION properties; SERVER properties are read once at "
    "start."
)
_SECRETS: Final = ("password", "secret", "tokens", "scram", "jaas", "credential", "keystore.key", "user.info")


@dataclass(frozen=True, slots=True)
class Setting:
    """`name`: as in the file, such as `tls.certificate`; `<name>` is a name that the user chooses. `type`: for display.
    `variable`: the environment variable; None if the setting has none."""

    name: str
    type: str
    default: str
    unit: str
    doc: str
    variable: str | None

    @property
    def is_secret(self) -> bool:
        return is_secret(self.name)


def is_secret(name: str) -> bool:
    """Whether the value of the setting or property is secret."""
    return any(word in name.lower() for word in _SECRETS) and not name.endswith(".credentials.source")


def settings() -> list[Setting]:
    """The settings of the file; nested ones have full names."""
    return list(_of_model(Configuration, "", "MILLSTREAM_"))


def _of_model(model: type[BaseModel], prefix: str, variable: str | None) -> Iterator[Setting]:
    docs = _docs(model)
    for name, field in model.model_fields.items():
        if name == "properties":
            continue
        full = f"{prefix}{name}"
        own = None if variable is None else f"{variable}{name.upper()}"
        nested, many = _nested(field.annotation)
        if nested is None:
            yield Setting(full, _type_text(field.annotation), _default(field), unit_of(name), docs.get(name, ""), own)
        elif many:
            yield from _of_model(nested, f"{full}.<name>.", None)
        else:
            yield from _of_model(nested, f"{full}.", None if own is None else f"{own}__")


def _nested(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model inside `Model | None` or `dict[str, Model]`, and whether it is a dict of models."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation, False
    for part in typing.get_args(annotation):
        if inspect.isclass(part) and issubclass(part, BaseModel):
            return part, typing.get_origin(annotation) is dict
    return None, False


_NAMES: Final[dict[Any, str]] = {
    str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", ListenAddress: "HOST:PORT",
    SecretStr: "text", types.NoneType: "",
}  # fmt: skip


def _type_text(annotation: Any) -> str:
    if annotation in _NAMES:
        return _NAMES[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return ", ".join(map(str, arguments))
    if origin is tuple:
        return f"list of {_type_text(arguments[0])}"
    return " or ".join(text for text in map(_type_text, arguments) if text)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "none: must be given"
    value = field.get_default(call_default_factory=True)
    if value is None or value == () or value == {}:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _docs(model: type[BaseModel]) -> Mapping[str, str]:
    """The docstring below each field, in one line. Pydantic could collect them, but it would do so at every start of a
    server: 0.15 s of CPU."""
    (declared,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(declared, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in pairwise(declared.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                found[name] = " ".join(text.split())
            case _:
                pass
    return found


def unit_of(name: str) -> str:
    """The unit at the end of a name, or before words such as `max`.

    >>> unit_of("kafka_fetch_bytes"), unit_of("millstream.emit.final.idle.ms"), unit_of("http")
    ('bytes', 'milliseconds', '')
    """
    words = name.replace(".", "_").replace("-", "_").split("_")
    words = [word for word in words if word not in ("max", "min", "limit", "buffering")]
    return next((unit for word, unit in _UNITS if words and words[-1] == word), "")


def properties() -> list[Property[object]]:
    """The properties that have an effect, by name."""
    return sorted((entry for entry in PROPERTIES.values() if entry.effective), key=lambda entry: entry.name)


def accepted_properties() -> list[str]:
    """Names of Kafka and ksqlDB that may be set, but have no effect."""
    return sorted(entry.name for entry in PROPERTIES.values() if not entry.effective)


def reference_tables() -> str:
    """The part of docs/configuration.md that is generated from the declarations, as Markdown."""
    lines = ["## Settings", "", "| setting | type | default | unit | meaning |", "| --- | --- | --- | --- | --- |"]
    for setting in settings():
        lines.append(_row(f"`{setting.name}`", setting.type, _code(setting.default), setting.unit, setting.doc))
    lines += ["", "## Properties", "", _PROPERTIES, ""]
    lines += ["| property | scope | type | default | unit | meaning |", "| --- | --- | --- | --- | --- | --- |"]
    for entry in properties():
        aliases = f" Also called {', '.join(f'`{alias}`' for alias in entry.aliases)}." if entry.aliases else ""
        kind = ", ".join(entry.choices) if entry.choices else entry.type.lower()
        lines.append(
            _row(f"`{entry.name}`", entry.scope, kind, _code(entry.default), unit_of(entry.name), entry.doc + aliases)
        )
    names = ", ".join(f"`{name}`" for name in accepted_properties())
    lines += [
        "",
        "## Accepted and without effect",
        "",
        "Scripts for ksqlDB may set these; they have no effect:",
        "",
        f"{names}.",
    ]
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _code(text: str) -> str:
    return f"`{text}`" if text and not text.startswith("none:") else text
