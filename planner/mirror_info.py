"""What the catalog knows of a mirror."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MirrorState = Literal["RUNNING", "PAUSED", "PROMOTED"]


@dataclass(frozen=True, slots=True)
class MirrorInfo:
    """`brokers`: of the source. `topics`: names, in which * stands for anything. `config`: as it was given, in lower
    case; secrets are sealed. `state`: a promoted one copies nothing any more."""

    name: str
    brokers: str
    topics: tuple[str, ...]
    config: Mapping[str, str]
    statement: str = ""
    state: MirrorState = "RUNNING"
