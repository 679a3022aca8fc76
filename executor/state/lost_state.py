"""Whether a query's position and its state are those of one moment, and what to say where they are not.

A batch commits its input positions together with the end of the changelog that holds its state changes, under the same
group. So a log that comes back with an older changelog, or with older offsets, is found out: state and position must
have come from the same batch, or a row would count twice, or not at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping

from ...logcore.client import LogClient, TopicPartition
from ...logcore.errors import CorruptLog
from ..errors import PositionLost, StateLost
from ..queries.query_log import FORGOTTEN, changelog_topic, offset_group

LOST = (CorruptLog, StateLost, PositionLost)
"""What is gone does not come back by itself, and to go on without it would give wrong results."""

Ends = Mapping[int, int]
"""By partition of the changelog: the offset after the last row that belongs to the committed position."""


def with_ends(positions: Mapping[TopicPartition, int], query_id: str, ends: Ends) -> dict[TopicPartition, int]:
    """What a batch commits: where reading goes on, and where its state ends."""
    topic = changelog_topic(query_id)
    return {**positions, **{TopicPartition(topic, partition): end for partition, end in ends.items()}}


def committed_ends(client: LogClient, query_id: str) -> dict[int, int]:
    """Empty for a query that has not committed state yet, or never did so here."""
    committed = client.committed_offsets(offset_group(query_id))
    topic = changelog_topic(query_id)
    return {at.partition: offset for at, offset in committed.items() if at.topic == topic and offset != FORGOTTEN}


def forget_ends(client: LogClient, query_id: str) -> None:
    """Somebody else writes the state from now on, and notes its ends elsewhere."""
    ends = committed_ends(client, query_id)
    if ends:
        client.commit_offsets(offset_group(query_id), with_ends({}, query_id, dict.fromkeys(ends, FORGOTTEN)))


def check_ends(query_id: str, noted: Ends, ends: Ends) -> None:
    """Raises `StateLost` where the changelog ends (`ends`) before what belongs to the position (`noted`).

    In: `ends`: read after the query's producer was taken, so that no transaction of an earlier one is undecided.

    A position is committed with its state, so the marker of that transaction follows the state's last row. An end at
    `noted` itself lacks one of them: a log that has lost the row, and not the coordinator's decision, writes the marker
    at its start to where the row was.
    """
    for partition, end in noted.items():
        if ends.get(partition, 0) <= end:
            raise state_lost(
                query_id,
                f'partition {partition} of topic "{changelog_topic(query_id)}" ends at offset'
                f" {ends.get(partition, 0)}, but the query's state and its commit reach to {end + 1}",
            )


def check_not_ahead(query_id: str, noted: Ends, partition: int, offset: int) -> None:
    """Raises `StateLost` where the state holds what was written after the committed position."""
    if offset > noted.get(partition, offset):
        raise state_lost(
            query_id,
            f"its state has changes up to offset {offset} of the changelog, and its committed position belongs to"
            f" offset {noted[partition]}: the committed offsets are older than the state",
        )


@contextlib.contextmanager
def whole_state(query_id: str) -> Generator[None]:
    """Damage that is found in here is damage to the state of the query. Raises `StateLost`."""
    try:
        yield
    except CorruptLog as error:
        raise state_lost(query_id, error.message) from error


def state_lost(query_id: str, reason: str) -> StateLost:
    return StateLost(f"the state of query {query_id} cannot be known: {reason}", hint=how_to_rebuild(query_id))


def how_to_rebuild(query_id: str) -> str:
    return f"Restore the files from a backup, or rebuild the query from its sources: RESET {query_id};"


def what_to_do(error: Exception) -> str:
    """The message of an error, and of one of `LOST` also its hint: a query's status has no other place for it."""
    text = str(error) or type(error).__name__
    return f"{text}. {error.hint}" if isinstance(error, LOST) and error.hint else text
