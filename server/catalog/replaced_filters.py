"""What a replaced query's filter does with rows that the one before it has let through: it deletes them.

A table's filter emits a deletion only for a row that it let through itself. After CREATE OR REPLACE the topic has rows
that another filter let through, or that passed while there was none. So from then on each row that fails deletes what
its key had before: at most, a key is deleted whose earlier row the query had not let through either.
"""

from __future__ import annotations

from dataclasses import replace

from ...planner.physical import PhysicalPlan


def deleting_what_fails(plan: PhysicalPlan, replaced: PhysicalPlan) -> PhysicalPlan:
    """The plan, whose last filters delete what fails if they differ from those of the plan that it replaces."""
    if plan.root.gives != "TABLE" or any(step.final for step in plan.steps()):  # final rows replace no other ones
        return plan
    before, after = replaced.root.last_conditions, plan.root.last_conditions
    deletes_already = bool(before) and replaced.root.deleting_failed() == replaced.root
    if not after or (before == after and not deletes_already):
        return plan
    return replace(plan, root=plan.root.deleting_failed())
