"""The catalog's entry for a mirror."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MirrorState = Literal["RUNNING", "PAUSED", "PROMOTED"]


@dataclass(frozen=True, slots=True)
class MirrorInfo:
    """`brokers`: of the source. `topics`: names, in which * matches any text. `config`: as given, with names in lower
    case and encrypted secrets. `state`: a promoted mirror no longer copies."""

    name: str
    brokers: str
    topics: tuple[str, ...]
    config: Mapping[str, str]
    statement: str = ""
    state: MirrorState = "RUNNING"
