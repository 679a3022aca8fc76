"""Checks that a query's position and its state belong to the same batch, and makes the errors if they do not.

A batch commits its input positions together with the end of the changelog that contains its state changes, under the
same group. So if the log comes back with an older changelog, or with older offsets, this is detected. Otherwise a row
would count twice, or not at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping

from ...logcore.client import LogClient, TopicPartition
from ...logcore.errors import CorruptLog
from ..errors import PositionLost, StateLost
from ..queries.query_log import FORGOTTEN, changelog_topic, offset_group

LOST = (CorruptLog, StateLost, PositionLost)
"""Errors after which a retry does not help: lost data does not come back, and without it results would be wrong."""

Ends = Mapping[int, int]
"""By partition of the changelog: the offset after the last row that belongs to the committed position."""


def with_ends(positions: Mapping[TopicPartition, int], query_id: str, ends: Ends) -> dict[TopicPartition, int]:
    """The offsets that a batch commits: where reading continues, and where its state ends."""
    topic = changelog_topic(query_id)
    return {**positions, **{TopicPartition(topic, partition): end for partition, end in ends.items()}}


def committed_ends(client: LogClient, query_id: str) -> dict[int, int]:
    """The committed ends; empty if the query has not committed state yet, or never did so here."""
    committed = client.committed_offsets(offset_group(query_id))
    topic = changelog_topic(query_id)
    return {at.partition: offset for at, offset in committed.items() if at.topic == topic and offset != FORGOTTEN}


def forget_ends(client: LogClient, query_id: str) -> None:
    """Marks the ends as forgotten. Another executor writes the state from now on, and records its ends elsewhere."""
    ends = committed_ends(client, query_id)
    if ends:
        client.commit_offsets(offset_group(query_id), with_ends({}, query_id, dict.fromkeys(ends, FORGOTTEN)))


def check_ends(query_id: str, noted: Ends, ends: Ends) -> None:
    """Raises `StateLost` if the changelog ends (`ends`) before the state that belongs to the position (`noted`).

    In: `ends`: read after the query's producer was acquired, so no transaction of an earlier producer is undecided.

    A position is committed with its state, so the marker of that transaction follows the state's last row. If the
    changelog ends at `noted` itself, the row or the marker is missing: a log that has lost the row, but not the
    coordinator's decision, writes the marker at its start, in the place of the row.
    """
    for partition, end in noted.items():
        if ends.get(partition, 0) <= end:
            raise state_lost(
                query_id,
                f'partition {partition} of topic "{changelog_topic(query_id)}" ends at offset'
                f" {ends.get(partition, 0)}, but the query's state and its commit reach to {end + 1}",
            )


def check_not_ahead(query_id: str, noted: Ends, partition: int, offset: int) -> None:
    """Raises `StateLost` if the state contains changes that were written after the committed position."""
    if offset > noted.get(partition, offset):
        raise state_lost(
            query_id,
            f"its state has changes up to offset {offset} of the changelog, and its committed position belongs to"
            f" offset {noted[partition]}: the committed offsets are older than the state",
        )


@contextlib.contextmanager
def whole_state(query_id: str) -> Generator[None]:
    """Turns `CorruptLog` in its body into `StateLost`: there, damage to the log is damage to the query's state."""
    try:
        yield
    except CorruptLog as error:
        raise state_lost(query_id, error.message) from error


def state_lost(query_id: str, reason: str) -> StateLost:
    return StateLost(f"the state of query {query_id} cannot be known: {reason}", hint=how_to_rebuild(query_id))


def how_to_rebuild(query_id: str) -> str:
    return f"Restore the files from a backup, or rebuild the query from its sources: RESET {query_id};"


def what_to_do(error: Exception) -> str:
    """The message of an error. For errors in `LOST` it includes the hint: a query's status has no other field for
    it."""
    text = str(error) or type(error).__name__
    return f"{text}. {error.hint}" if isinstance(error, LOST) and error.hint else text
