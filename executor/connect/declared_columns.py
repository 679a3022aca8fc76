"""What a sink is told about the columns of a topic's records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DeclaredColumns:
    """Types by column, empty where nobody declares any. `key`: its only column has no name ("") where the key is one
    value and only its converter gives the type."""

    key: Mapping[str, pa.DataType]
    value: Mapping[str, pa.DataType]


Declarations = Callable[[str], DeclaredColumns]
"""By topic, as it was before any transform."""

_NOTHING: Final = DeclaredColumns({}, {})


def nothing_declared(topic: str) -> DeclaredColumns:
    del topic
    return _NOTHING
