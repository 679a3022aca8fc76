"""What planning takes from the properties of a session."""

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

    `key_format`, `value_format`: of CREATE statements that name none, in upper case; without a value format they must.
    `wraps_single_values`: a single value column is written inside an object, where WITH does not say. `topic_prefix`:
    of the topics that queries make. `full_sql`: of pull queries. `lossy_final`: EMIT FINAL leaves out what ksqlDB does.
    `keyless_projections`: CREATE … AS SELECT may leave out the key of its source.
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
