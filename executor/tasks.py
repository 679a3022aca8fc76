"""Facts about a physical plan that the runtime asks for: tasks, state and order."""

from __future__ import annotations

from ..planner.physical import (
    Aggregate,
    Expire,
    Join,
    Over,
    PhysicalPlan,
    Rekey,
    Sink,
    Source,
    Step,
    inputs_of,
    walk,
)


def task_count(step: Step) -> int:
    """How many different `_part` the step's output can have: the partitions of its source or of its last Rekey."""
    match step:
        case Source() | Rekey():
            return step.partition_count
        case _:
            return max(task_count(child) for child in inputs_of(step))


def changelog_partition_count(plan: PhysicalPlan) -> int:
    """Enough partitions for the tasks of every step; state of task n goes to partition n."""
    return max(task_count(step) for step in walk(plan.root))


def is_stateful(plan: PhysicalPlan) -> bool:
    return any(
        isinstance(step, Aggregate | Over | Join | Expire)
        or (isinstance(step, Source) and (step.materialized or step.ttl_ms is not None))
        for step in walk(plan.root)
    )


def needs_time_order(plan: PhysicalPlan) -> bool:
    """Whether rows of different source partitions can meet, so that their order by time matters."""
    steps = walk(plan.root)
    if len(plan.sources()) > 1 or any(isinstance(step, Rekey) for step in steps):
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
