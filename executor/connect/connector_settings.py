"""The settings of a connector: fields of a frozen dataclass, with the names, types and texts that users see."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...sql.settings.property import says_true
from .connector_errors import InvalidConnector
from .connector_secrets import is_secret_name, refers

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")
_DOC: Final = "millstream.setting"
_TYPE_NAMES: Final = {str: "STRING", int: "INT", float: "DOUBLE", bool: "BOOLEAN", tuple[str, ...]: "LIST"}


@dataclass(frozen=True, slots=True)
class ConnectorSetting:
    """`default`: as text; None if the setting is `required`, or if it has no default and may be missing. `earlier`: the
    name that the setting had in earlier versions of the connector in Kafka Connect, which statements still have."""

    name: str
    type: str
    doc: str
    required: bool
    default: str | None
    secret: bool
    choices: tuple[str, ...]
    earlier: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,) if self.earlier is None else (self.name, self.earlier)

    def given(self, config: Mapping[str, str]) -> str | None:
        """The value in these settings, by whichever of its names. Raises `InvalidConnector` if both are there."""
        if self.earlier in config and self.name in config:
            both = " and ".join(self.names)
            raise InvalidConnector(f"{both} are the same setting: leave one of them out", setting=self.name)
        return self.first(config)

    def first(self, config: Mapping[str, str]) -> str | None:
        """Like `given`, of settings that may be wrong."""
        return next((config[name] for name in self.names if name in config), None)


@dataclass(frozen=True, slots=True)
class SettingProblem:
    name: str
    message: str
    hint: str | None = None


def setting(
    doc: str, *, default: Any = dataclasses.MISSING, name: str | None = None, secret: bool = False,
    choices: tuple[str, ...] = (), earlier: str | None = None,
) -> Any:  # fmt: skip
    """A field of a connector's settings: the setting of `database_hostname` is `database.hostname`. In: `doc`: a
    sentence; `secret`: whether to never show the value; `earlier`: another name of the setting, which it had once."""
    metadata = {_DOC: (doc, name, secret, choices, earlier)}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def settings_of(kind: type[Any]) -> tuple[ConnectorSetting, ...]:
    """The settings, in the order of the fields."""
    types = typing.get_type_hints(kind)
    return tuple(_described(item, types[item.name]) for item in dataclasses.fields(kind))


def _described(item: dataclasses.Field[Any], type_: Any) -> ConnectorSetting:
    doc, name, secret, choices, earlier = item.metadata[_DOC]
    shown = name or item.name.replace("_", ".")
    required = item.default is dataclasses.MISSING
    default = None if required or item.default is None else _as_text(item.default)
    return ConnectorSetting(
        shown, _TYPE_NAMES[_bare(type_)], doc, required, default, secret or is_secret_name(shown), choices, earlier
    )


def _bare(type_: Any) -> Any:
    """The type without None: `str | None` gives str."""
    inner = [item for item in typing.get_args(type_) if item is not type(None)]
    return inner[0] if type(None) in typing.get_args(type_) else type_


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def problems_of(kind: type[Any], given: Mapping[str, str]) -> list[SettingProblem]:
    """What is wrong with the values. A reference, `${…}`, is checked only when the task starts."""
    found: list[SettingProblem] = []
    types = typing.get_type_hints(kind)
    for item in dataclasses.fields(kind):
        described = _described(item, types[item.name])
        try:
            value = described.given(given)
            if value is None and described.required:
                raise InvalidConnector(f"{described.name} is missing: {described.doc}", setting=described.name)
            if value is not None and not refers(value):
                _value(described, _bare(types[item.name]), value)
        except InvalidConnector as error:
            found.append(SettingProblem(described.name, error.message))
    return found


def read_settings(kind: type[S], given: Mapping[str, str]) -> S:
    """The settings as an object of this class. Raises `InvalidConnector`, which names the setting and no secret
    value."""
    types = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for item in dataclasses.fields(kind):
        described = _described(item, types[item.name])
        value = described.given(given)
        if value is not None:
            values[item.name] = _value(described, _bare(types[item.name]), value)
        elif described.required:
            raise InvalidConnector(f"{described.name} is missing: {described.doc}", setting=described.name)
    try:
        return kind(**values)
    except ValueError as error:  # from a __post_init__ that checks several settings together
        raise InvalidConnector(str(error)) from None


def _value(described: ConnectorSetting, type_: Any, text: str) -> Any:
    shown = "the given value" if described.secret else f'"{text}"'
    if described.choices and text not in described.choices:
        options = ", ".join(described.choices)
        raise InvalidConnector(f"{described.name} is {shown}, but must be one of {options}", setting=described.name)
    try:
        return _READERS[_TYPE_NAMES[type_]](text)
    except ValueError:
        what = _TYPE_NAMES[type_]
        raise InvalidConnector(f"{described.name} is {shown}, which is no {what}", setting=described.name) from None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return says_true(text)


def _list(text: str) -> tuple[str, ...]:
    return tuple(item for item in re.split(r"\s*,\s*", text.strip()) if item)


_READERS: Final[dict[str, Any]] = {"STRING": str, "INT": int, "DOUBLE": float, "BOOLEAN": _boolean, "LIST": _list}
