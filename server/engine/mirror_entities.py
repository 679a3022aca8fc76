"""The answers of SHOW MIRRORS and DESCRIBE MIRROR; ksqlDB has neither statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .entities import Entity


@dataclass(frozen=True, slots=True)
class MirrorLine:
    """`state`: of the mirror; DEGRADED if some of its partitions are not copied. `lag`: the number of the source's
    offsets that are not copied yet; None if unknown. `last_error`: None if there is none."""

    name: str
    state: str
    mode: str
    source: str
    topics: list[str]
    partitions: int
    lag: int | None
    bytes_per_second: int
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorList(Entity):
    type_name = "mirror_list"

    mirrors: list[MirrorLine]


@dataclass(frozen=True, slots=True)
class MirroredPartitionLine:
    """`phase`: COPYING, WAITING because of a temporary problem, or STOPPED by a permanent one."""

    topic: str
    partition: int
    end_offset: int
    lag: int | None
    phase: str
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorDescribed(Entity):
    """`refused`: topics that are not copied, and why. `records`, `bytes`, `group_offsets`, `restarts`: since the start
    here. `config`: without secrets."""

    type_name = "mirror_description"

    mirror: MirrorLine
    partitions: list[MirroredPartitionLine]
    refused: Mapping[str, str]
    records: int
    bytes: int
    group_offsets: int
    restarts: int
    config: Mapping[str, str]
