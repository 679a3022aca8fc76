"""What clients note while they work: one line of JSON for each thing that happens, written at once.

A client that is killed leaves what it had noted; half a line at the end counts as not written. Times are seconds of the
machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]

SEND = "send"  # producer, transaction or null, records [[value, place]]: handed to the library from now on
SENT = "sent"  # records [[value, place, offset]]: acknowledged
NOT_SENT = "not sent"  # values: certainly not in the log
COMMITTING = "committing"  # transaction
COMMITTED = "committed"  # transaction
ABORTED = "aborted"  # transaction
STARTED = "started"  # consumer, group, asked_at, starts {place: offset}: reads each from this committed offset
REVOKED = "revoked"  # consumer, places
POLLED = "polled"  # consumer, records {place: [[offset, value, source]]}
STORING = "storing"  # commit, group, transaction or null, offsets {place: offset}: group offsets, about to be committed
STORED = "stored"  # commit
FINAL = "final"  # reader, place, end, records [[offset, value, source]]: all that is there once all is well


class Recorder:
    """Appends to one file; each line is handed to the system before `note` returns. Any thread may call it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, kind: str, **fields: Any) -> float:
        """Returns the time that it has written."""
        now = time.monotonic()
        os.write(self._file, json.dumps({"at": now, "kind": kind, **fields}).encode() + b"\n")
        return now

    def close(self) -> None:
        os.close(self._file)


def read_events(folder: Path) -> Iterator[Event]:
    """All events of all clients (the files `*.jsonl`), in the order of their times."""
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_bytes().split(b"\n")[:-1]]
    yield from sorted(map(json.loads, lines), key=lambda event: event["at"])
