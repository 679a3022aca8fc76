"""The settings of a running query. The plan's properties override the session's, which override the server's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...sql.settings.property_table import (
    CACHE_BYTES,
    FAIL_ON_BAD_RECORD,
    FAIL_ON_BAD_TIMESTAMP,
    FINAL_IDLE_MS,
    SPARK_CACHE,
    SparkCache,
)
from ..building import Emit
from ..errors import TimestampFailed
from ..record_error import RecordError
from ..state.connection import EngineSettings
from .start_offsets import StartSettings


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """Read once when a query is opened.

    `emit`: without a cache every change is emitted; with one, the last change per key and batch. `idle_ms`: time
    without input after which stream time advances; 0 means never. `stops_on_bad_record`: in a Sandbox.
    `stops_on_bad_time`: at a record without a usable timestamp. `cache`: of Spark's tasks.
    """

    emit: Emit
    idle_ms: int
    stops_on_bad_record: bool
    stops_on_bad_time: bool
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
            stops_on_bad_time=FAIL_ON_BAD_TIMESTAMP.of(properties),
            cache=SPARK_CACHE.of(properties),
            start=StartSettings.of(properties),
            engine=EngineSettings.of(properties, threads),
        )

    def check_times(self, query_id: str, errors: Iterable[RecordError]) -> None:
        """Raises `TimestampFailed` if one of the errors is about a timestamp and the query ends there."""
        found = next((each for each in errors if each.in_time), None) if self.stops_on_bad_time else None
        if found is not None:
            raise TimestampFailed(
                f"query {query_id}: {found.message} (offset {found.offset} of partition {found.partition} of "
                f"{found.topic}). To leave such records out, create the query with "
                f"'{FAIL_ON_BAD_TIMESTAMP.name}' = 'false'"
            )
