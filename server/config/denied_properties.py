"""The properties that sessions and requests may not set: `ksql.properties.overrides.denylist`."""

from __future__ import annotations

from collections.abc import Set

from millstream.errors import InvalidProperty, Span

from ...sql.settings.property_table import DENYLIST
from .properties import find_property


def denied_properties(listed: str) -> frozenset[str]:
    """The canonical names. In: `listed`: the property's value, separated by commas."""
    return frozenset(_canonical(item.strip()) for item in listed.split(",") if item.strip())


def refuse_denied(name: str, denied: Set[str], span: Span | None = None) -> None:
    """In: `name`: canonical. Raises `InvalidProperty`."""
    if name in denied:
        raise InvalidProperty(
            f"Cannot override property '{name}'", span=span, hint=f"The server's configuration says so: {DENYLIST}."
        )


def _canonical(name: str) -> str:
    """The canonical name; a name that this server does not know stays as it is."""
    try:
        return find_property(name).name
    except InvalidProperty:
        return name
