"""The planner's settings, from the properties of a session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..sql.settings.property_table import (
    DEFAULT_KEY_FORMAT,
    DEFAULT_VALUE_FORMAT,
    FINAL_LOSSY,
    NEW_QUERY_PLANNER,
    PULL_FULL_SQL,
    TOPIC_PREFIX,
    WRAP_SINGLE_VALUES,
)


@dataclass(frozen=True, slots=True)
class PlanningSettings:
    """Read once for each statement.

    `key_format`, `value_format`: the defaults of CREATE statements, in upper case; without a default value format,
    statements must name one. `wraps_single_values`: the default for writing a single value column inside an object.
    `topic_prefix`: of topics that queries create. `full_sql`: pull queries may use all of SQL. `lossy_final`: EMIT
    FINAL loses the same results as in ksqlDB. `keyless_projections`: CREATE … AS SELECT may leave out its source's key.
    """

    key_format: str
    value_format: str | None
    wraps_single_values: bool
    topic_prefix: str
    full_sql: bool
    lossy_final: bool
    keyless_projections: bool

    @staticmethod
    def of(properties: Mapping[str, str]) -> PlanningSettings:
        """Raises `InvalidProperty`."""
        return PlanningSettings(
            key_format=DEFAULT_KEY_FORMAT.of(properties).upper(),
            value_format=DEFAULT_VALUE_FORMAT.of(properties).upper() or None,
            wraps_single_values=WRAP_SINGLE_VALUES.of(properties),
            topic_prefix=TOPIC_PREFIX.of(properties),
            full_sql=PULL_FULL_SQL.of(properties),
            lossy_final=FINAL_LOSSY.of(properties),
            keyless_projections=NEW_QUERY_PLANNER.of(properties),
        )
