"""A record that a query had to leave out, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RecordError:
    """`key` and `value` are the record's bytes, where they are still at hand.

    `kind`: the record could not be decoded, or an expression or an encoder failed on it.
    """

    kind: Literal["decode", "compute"]
    message: str
    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    in_key: bool = False  # the key is what could not be decoded
