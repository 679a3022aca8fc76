"""Facts about a physical plan that the runtime asks for: tasks, state and order."""

from __future__ import annotations

from ..planner.physical import PhysicalPlan
from ..planner.steps.sink import Sink
from ..planner.steps.source import Source


def changelog_partition_count(plan: PhysicalPlan) -> int:
    """Enough partitions for the tasks of every step; state of task n goes to partition n."""
    return max(step.task_count for step in plan.steps())


def is_stateful(plan: PhysicalPlan) -> bool:
    return any(step.stateful for step in plan.steps())


def needs_time_order(plan: PhysicalPlan) -> bool:
    """Whether rows of different source partitions can meet, so that their order by time matters."""
    if len(plan.sources()) > 1 or any(step.rekeys for step in plan.steps()):
        return True
    if not isinstance(plan.root, Sink):
        return True
    root = plan.root
    return any(source.partition_count != root.partition_count or _moves(source, root) for source in plan.sources())


def _moves(source: Source, sink: Sink) -> bool:
    """Whether a row may be written to another partition than the one it was read from: its key has other bytes."""
    before, after = source.schema.key, sink.schema.key
    if not before and not after:
        return False
    bare = source.key_format == sink.key_format and not sink.key_format.wrap_single
    return not (bare and len(before) == len(after) == 1 and before[0].type == after[0].type)
