"""The settings of a running query. The plan's properties override the session's, which override the server's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...sql.settings.property_table import CACHE_BYTES, FAIL_ON_BAD_RECORD, FINAL_IDLE_MS, SPARK_CACHE, SparkCache
from ..building import Emit
from ..state.connection import EngineSettings
from .start_offsets import StartSettings


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """Read once when a query is opened.

    `emit`: without a cache every change is emitted; with one, the last change per key and batch. `idle_ms`: time
    without input after which stream time advances; 0 means never. `stops_on_bad_record`: in a Sandbox. `cache`: of
    Spark's tasks.
    """

    emit: Emit
    idle_ms: int
    stops_on_bad_record: bool
    cache: SparkCache
    start: StartSettings
    engine: EngineSettings

    @staticmethod
    def of(properties: Mapping[str, str], threads: int | None = None) -> QuerySettings:
        """In: `threads`: DuckDB's thread count unless the properties set it. Raises `InvalidProperty`."""
        return QuerySettings(
            emit="every" if CACHE_BYTES.of(properties) == 0 else "last",
            idle_ms=FINAL_IDLE_MS.of(properties),
            stops_on_bad_record=FAIL_ON_BAD_RECORD.of(properties),
            cache=SPARK_CACHE.of(properties),
            start=StartSettings.of(properties),
            engine=EngineSettings.of(properties, threads),
        )
