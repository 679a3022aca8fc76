"""Records that a client's query had to skip. The client gets their number; the processing log has an entry for each.

Persistent queries write the same entries in the transaction of their batch (`query.py`). A client's query has no
transaction, so entries may be missing after a crash.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog

from millstream.errors import LogError

from ...logcore.client import LogClient
from .. import processing_log
from ..record_error import RecordError, left_out

ENTRIES_MAX = 100  # per batch, so that a client that repeats its query does not fill the log

_log = structlog.get_logger("millstream.queries")


class LeftOut:
    """`count`: records skipped so far. A query continues if its entries cannot be written."""

    def __init__(self, log: LogClient, query_id: str) -> None:
        self._log = log
        self._query_id = query_id
        self.count = 0

    def note(self, errors: Sequence[RecordError]) -> None:
        """Counts and logs the errors of a batch. Errors in records of the processing log itself are not logged."""
        self.count += left_out(errors)
        traced = [error for error in errors if error.topic != processing_log.TOPIC][:ENTRIES_MAX]
        if not traced:
            return
        now_ms = int(time.time() * 1000)
        try:
            processing_log.create_topic(self._log)
            self._log.append(processing_log.TOPIC, 0, processing_log.records_of(self._query_id, traced, now_ms))
        except LogError as error:
            _log.warning("no trace of records left out", query_id=self._query_id, count=len(errors), error=str(error))


def remark(count: int) -> str | None:
    """The message for the client; None if no record was skipped."""
    if not count:
        return None
    subject = "1 record that could not be read was" if count == 1 else f"{count} records that could not be read were"
    return f"{subject} left out; the topic {processing_log.TOPIC} has the reasons."
