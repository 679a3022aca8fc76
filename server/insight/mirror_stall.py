"""Why a mirror copies nothing, or not everything: causes, each a sentence with figures and a hint."""

from __future__ import annotations

from collections.abc import Iterator

from ...executor.connect.mirrors import MirrorStatus
from ...planner.insight.stall import Cause, counted
from ...planner.mirror_info import MirrorInfo
from ...sql.identifiers import quote_identifier


def mirror_causes(info: MirrorInfo, status: MirrorStatus, now_ms: int) -> list[Cause]:
    """All findings, those that block the mirror first."""
    found = [*_state_causes(info, status, now_ms), *_part_causes(info, status)]
    lag = status.board.lag
    if lag:
        message = f"{counted(lag, 'offset')} of the source are not here yet."
        found.append(Cause("BEHIND", message, blocks=False, figures={"lag": lag}))
    if not any(cause.blocks for cause in found):
        records = status.board.records
        message = f"Nothing blocks the mirror: {counted(records, 'record')} since it started here."
        found.append(Cause("NOTHING_FOUND", message, blocks=False, figures={"records": records}))
    return sorted(found, key=lambda cause: not cause.blocks)


def _state_causes(info: MirrorInfo, status: MirrorStatus, now_ms: int) -> Iterator[Cause]:
    name, task = quote_identifier(info.name), status.task
    if info.state == "PROMOTED":
        yield Cause("PROMOTED", "The mirror is promoted: its topics are written here.", "DROP MIRROR removes it.")
    elif info.state == "PAUSED":
        yield Cause("PAUSED", "The mirror is paused.", f"RESUME MIRROR {name}; continues where its copies end.")
    elif task is not None and task.state == "FAILED":
        hint = f"When the reason is fixed, RESUME MIRROR {name}; continues where its copies end."
        yield Cause("FAILED", f"The mirror has stopped: {task.error or 'without an error'}", hint)
    elif task is not None and task.error is not None:
        left_ms = None if task.waits_until_ms is None else max(0, task.waits_until_ms - now_ms)
        again = "now" if not left_ms else f"in {left_ms / 1000:.1f} s"
        yield Cause(
            "RETRYING",
            f"The mirror waits and tries again {again} (error {task.restarts} since it started here): {task.error}",
            "It continues automatically when the reason is gone.",
            figures={"retryInMs": left_ms, "restarts": task.restarts},
        )


def _part_causes(info: MirrorInfo, status: MirrorStatus) -> Iterator[Cause]:
    for topic, why in sorted(status.board.refused.items()):
        yield Cause("TOPIC_NOT_COPIED", f"A topic is not copied: {why}.", "The other topics are.",
                    figures={"topic": topic})  # fmt: skip
    for (topic, partition), found in sorted(status.board.partitions.items()):
        figures = {"topic": topic, "partition": partition, "endOffset": found.end_offset}
        if found.phase == "STOPPED":
            hint = f"After that is settled, PAUSE MIRROR {quote_identifier(info.name)}; and RESUME it."
            yield Cause(
                "PARTITION_STOPPED", f"A partition is not copied any more: {found.error}", hint, figures=figures
            )
        elif found.phase == "WAITING" and found.error:
            yield Cause("PARTITION_WAITS", f'Partition {partition} of "{topic}" waits: {found.error}',
                        "It continues automatically when the reason is gone.", figures=figures)  # fmt: skip
