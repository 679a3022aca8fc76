"""The properties that an operator keeps sessions and requests from setting: `ksql.properties.overrides.denylist`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.errors import InvalidProperty, Span

from .properties import find_property

_DENY_LIST: Final = "ksql.properties.overrides.denylist"


def refuse_denied(name: str, server_properties: Mapping[str, str], span: Span | None = None) -> None:
    """In: `name`: canonical. Raises `InvalidProperty`."""
    denied = server_properties.get(_DENY_LIST, "")
    if denied and name in {_canonical(item.strip()) for item in denied.split(",") if item.strip()}:
        raise InvalidProperty(
            f"Cannot override property '{name}'", span=span, hint=f"The server's configuration says so: {_DENY_LIST}."
        )


def _canonical(name: str) -> str:
    """A list may name what this server does not know."""
    try:
        return find_property(name).name
    except InvalidProperty:
        return name
