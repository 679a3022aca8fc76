"""The settings of the Spark executor, from the server's properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...sql.settings.property_table import SPARK_BATCH_RECORDS, SPARK_BOOTSTRAP, SPARK_LOG_LEVEL, SPARK_MASTER


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """`bootstrap`: HOST:PORT where Spark's processes reach the log; None: the log's own address. `own`: the properties
    that configure Spark, by Spark's names."""

    master: str
    log_level: str
    bootstrap: str | None
    batch_records_max: int
    own: Mapping[str, str]

    @staticmethod
    def of(properties: Mapping[str, str]) -> SparkSettings:
        """Raises `InvalidProperty`."""
        return SparkSettings(
            master=SPARK_MASTER.of(properties),
            log_level=SPARK_LOG_LEVEL.of(properties),
            bootstrap=SPARK_BOOTSTRAP.of(properties) or None,
            batch_records_max=SPARK_BATCH_RECORDS.of(properties),
            own={name: properties[name] for name in properties if name.startswith("spark.")},
        )

    @property
    def is_local(self) -> bool:
        """Whether Spark's tasks run on this machine."""
        return self.master.startswith("local")

    @property
    def is_standalone(self) -> bool:
        """Whether the cluster is Spark's standalone cluster."""
        return self.master.startswith("spark://")
