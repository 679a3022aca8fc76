"""A physical plan as text, for EXPLAIN: the sink comes first, and each step is below the one that reads it."""

from __future__ import annotations

from collections.abc import Mapping

from ..physical import PhysicalPlan
from ..steps.step import Step


def explain(plan: PhysicalPlan, notes: Mapping[str, str] | None = None) -> str:
    """One line per step, indented under its reader, followed by the `notes` for its id."""
    return "\n".join(_lines(plan.root, 0, notes or {}))


def _lines(step: Step, depth: int, notes: Mapping[str, str]) -> list[str]:
    own = [f"{'  ' * depth}{' > ' if depth else ''}{step.describe()}"]
    if step.id in notes:
        own.append(f"{'  ' * depth}{' · ' if depth else '· '}{notes[step.id]}")
    return [*own, *(line for child in step.inputs for line in _lines(child, depth + 1, notes))]
