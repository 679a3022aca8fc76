"""Finds the keys of a topic that have a value. They have to be deleted if a source reports that a table was emptied, or
that it was read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from ...logcore.client import FetchedRows, LogClient
from ...logcore.errors import CorruptLog

_AT_A_TIME: Final = 10_000


def live_keys(
    log: LogClient, topic: str, partition: int, uncommitted: Mapping[bytes, bool], *, before: int | None = None
) -> Iterator[list[bytes]]:
    """The keys, in lists of limited length. The keys of one partition are in memory. In: `uncommitted`: for each key
    that the open transaction has written, whether it has a value; the log does not show these records before the
    commit. `before`: only keys whose last record is before this offset and that are not in the open transaction."""
    keys: dict[bytes, None] = {}

    def note(key: bytes, live: bool) -> None:
        if live:
            keys[key] = None
        else:
            keys.pop(key, None)

    position = log.offsets(topic, partition).log_start_offset
    while True:
        fetched = log.fetch(topic, partition, position)
        if fetched.next_offset <= position:
            break
        for run in fetched.runs:
            if not isinstance(run, FetchedRows):
                raise CorruptLog(f'topic "{topic}" of a connector has rows that somebody else has written')
            columns = (run.table[name].to_pylist() for name in ("key", "value", "offset"))
            for key, value, offset in zip(*columns, strict=True):
                if key is not None:
                    note(key, value is not None and (before is None or offset < before))
        position = fetched.next_offset
    for key, live in uncommitted.items():
        note(key, live and before is None)
    remaining = iter(keys)
    while chunk := list(islice(remaining, _AT_A_TIME)):
        yield chunk
