"""The engine's settings for one statement, from the properties of its session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...sql.settings.property_table import (
    PULL_IDLE_SECONDS,
    PULL_LIMIT_CLAUSE,
    PULL_RANGE_SCANS,
    PULL_STREAM_ROWS,
    PULL_STREAMS,
    PULL_TABLE_SCANS,
    VARIABLE_SUBSTITUTION,
)


@dataclass(frozen=True, slots=True)
class StatementSettings:
    """`substitutes_variables`: replace `${name}` in the statement's text. The others are about pull queries: whether
    they may use streams, LIMIT, table scans and range scans; up to how many records a stream is kept in memory for
    them, and how long after the last query."""

    substitutes_variables: bool
    pull_streams: bool
    pull_limit_clause: bool
    pull_table_scans: bool
    pull_range_scans: bool
    pull_stream_rows: int
    pull_idle_seconds: int

    @staticmethod
    def of(properties: Mapping[str, str]) -> StatementSettings:
        """Raises `InvalidProperty`."""
        return StatementSettings(
            substitutes_variables=VARIABLE_SUBSTITUTION.of(properties),
            pull_streams=PULL_STREAMS.of(properties),
            pull_limit_clause=PULL_LIMIT_CLAUSE.of(properties),
            pull_table_scans=PULL_TABLE_SCANS.of(properties),
            pull_range_scans=PULL_RANGE_SCANS.of(properties),
            pull_stream_rows=PULL_STREAM_ROWS.of(properties),
            pull_idle_seconds=PULL_IDLE_SECONDS.of(properties),
        )
