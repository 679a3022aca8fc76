"""A random case: sources, the queries over them, and what their last one must come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from .sources import SourceSpec


@dataclass(frozen=True, slots=True)
class Case:
    """Sources, and the statements of the queries, the last of which `reference` describes.

    `reference` gives rows of: rowtime (streams only), window start and end (windowed ones only), `nothing` (the value
    is null as a whole), then the key and value columns. `unordered`: columns whose arrays count as sets.
    `live`: a column by which rows that count nothing are left out before comparing. `net`: a batch gives its net
    changes, so that only the rows in the end do not depend on where batches end.
    """

    sources: tuple[SourceSpec, ...]
    statements: tuple[str, ...]
    reference: str
    kind: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    window: str | None = None
    sink_format: str = "JSON"
    key_format: str = "JSON"
    unordered: frozenset[str] = frozenset()
    live: str | None = None
    net: bool = False

    @property
    def text(self) -> str:
        return "\n".join([*(source.statement for source in self.sources), *self.statements])


# What can be grouped and joined: not KAFKA.
GROUPED = ("JSON", "JSON", "JSON", "DELIMITED")


def sink(rng: Random, key_format: str | None = None) -> tuple[str, str, str]:
    """Value format, key format, and the WITH clause that says them."""
    value_format, key_format = rng.choice(("JSON", "JSON", "JSON", "ARROW")), key_format or "JSON"
    return value_format, key_format, f" WITH (key_format='{key_format}', value_format='{value_format}')"


def latest(name: str, keys: Sequence[str]) -> str:
    """The rows of a table at the end."""
    last = f"QUALIFY row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY o DESC) = 1"
    return f"SELECT * FROM (SELECT * FROM {name} {last}) WHERE NOT nothing"
