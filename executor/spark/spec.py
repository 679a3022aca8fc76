"""What a run of a query is, as text that travels to all processes of Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ...logcore.remote import RemoteLog
from ...planner.serde import plan_from_json
from .lanes import Positions, positions_from_json, positions_to_json
from .stages import Stages, split

BATCH_RECORDS_MAX = 500_000


@dataclass(frozen=True, slots=True)
class RunSpec:
    """`run` is new with every start. `cache_directory`: of the query's bucket caches, on the hosts where tasks run;
    None keeps them in memory. `parallelism`: how many tasks a stage has."""

    plan_json: str
    bootstrap: str
    run: str
    start: Positions
    properties: Mapping[str, str] = field(default_factory=dict)
    cache_directory: str | None = None
    parallelism: int = 1
    batch_records_max: int = BATCH_RECORDS_MAX

    @property
    def stages(self) -> Stages:
        return _stages(self.plan_json)

    @property
    def query_id(self) -> str:
        return self.stages.plan.query_id

    def log(self) -> RemoteLog:
        """The process's connection to the log."""
        return _log(self.bootstrap)

    def to_json(self) -> str:
        return json.dumps(
            {
                "plan": self.plan_json,
                "bootstrap": self.bootstrap,
                "run": self.run,
                "start": positions_to_json(self.start),
                "properties": dict(self.properties),
                "cache_directory": self.cache_directory,
                "parallelism": self.parallelism,
                "batch_records_max": self.batch_records_max,
            }
        )


@lru_cache(maxsize=64)
def spec_from_json(text: str) -> RunSpec:
    found = json.loads(text)
    return RunSpec(
        found["plan"],
        found["bootstrap"],
        found["run"],
        positions_from_json(found["start"]),
        found["properties"],
        found["cache_directory"],
        found["parallelism"],
        found["batch_records_max"],
    )


@lru_cache(maxsize=64)
def _stages(plan_json: str) -> Stages:
    return split(plan_from_json(plan_json))


@lru_cache(maxsize=8)
def _log(bootstrap: str) -> RemoteLog:
    return RemoteLog(bootstrap)
