"""The definition of a run of a query, as text that is sent with its jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache

from ...logcore.client import LogClient
from ...logcore.remote import log_at
from ...planner.serde import plan_from_json
from .stages import Stages, split


@dataclass(frozen=True, slots=True)
class RunSpec:
    """`bootstrap`: the address where tasks reach the log. `run`: new with every start. `cache`: the place of the
    query's bucket caches on the hosts that run tasks (see `cache_folder`); None keeps them in memory. `home_secret`: of
    the application, by which the homes of its buckets know each other; empty: buckets have no homes. `driver_host`: a
    host that all tasks reach, for a home to find its own address."""

    plan_json: str
    bootstrap: str
    run: str
    properties: Mapping[str, str] = field(default_factory=dict)
    cache: str | None = None
    home_secret: str = field(default="", repr=False)
    driver_host: str = ""

    @property
    def stages(self) -> Stages:
        return _stages(self.plan_json)

    @property
    def query_id(self) -> str:
        return self.stages.plan.query_id

    def log(self) -> LogClient:
        """This process's connection to the log."""
        return _log(self.bootstrap)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@lru_cache(maxsize=64)
def spec_from_json(text: str) -> RunSpec:
    return RunSpec(**json.loads(text))


@lru_cache(maxsize=64)
def _stages(plan_json: str) -> Stages:
    return split(plan_from_json(plan_json))


@lru_cache(maxsize=8)
def _log(bootstrap: str) -> LogClient:
    return log_at(bootstrap)
