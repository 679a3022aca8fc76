"""The physical plan: a query's steps with topics, stores and generated SQL; frozen, versioned, serialisable."""

from __future__ import annotations

from dataclasses import dataclass, field

from .steps.source import Source, sources_below
from .steps.step import Step, walk

PLAN_VERSION = 1


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """The plan that the command topic stores and an executor runs."""

    query_id: str
    root: Step  # a Sink, or for a push query the step whose rows go to the client
    properties: dict[str, str] = field(default_factory=dict)
    version: int = PLAN_VERSION

    def steps(self) -> list[Step]:
        """All steps, inputs before the steps that read them."""
        return walk(self.root)

    def sources(self) -> tuple[Source, ...]:
        """The sources, left to right."""
        return sources_below(self.root)
