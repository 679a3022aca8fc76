"""The declared types of the columns of a topic's records, for sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DeclaredColumns:
    """Types by column; empty if none are declared. `key`: if the key is a single value and only its converter defines
    the type, there is one column with an empty name."""

    key: Mapping[str, pa.DataType]
    value: Mapping[str, pa.DataType]


Declarations = Callable[[str], DeclaredColumns]
"""The columns of a topic. In: its name before any transform."""

_NOTHING: Final = DeclaredColumns({}, {})


def nothing_declared(topic: str) -> DeclaredColumns:
    del topic
    return _NOTHING
