"""The errors of the log: one class for each kind of failure, with a stable code and, where it helps, a hint."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from millstream.errors import LogError

_SHOWN_MAX: Final = 3

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers that mean "no space": the disk, a quota, or the limit of a file's size."""


class UnknownTopic(LogError):
    """The topic does not exist, or has no such partition."""

    code = "UNKNOWN_TOPIC"


class UnknownTopicId(UnknownTopic):
    """No topic has this id: its topic was deleted. A topic of the same name is a different topic."""

    code = "UNKNOWN_TOPIC_ID"


class InconsistentTopicId(UnknownTopicId):
    """The topic with this id was deleted, and another topic now has its name."""

    code = "INCONSISTENT_TOPIC_ID"


class TopicExists(LogError):
    code = "TOPIC_EXISTS"


class InvalidTopic(LogError):
    """A name, partition count or setting that no topic can have."""

    code = "INVALID_TOPIC"


class InvalidSetting(InvalidTopic):
    """A setting that does not exist, or a value that it cannot have."""

    code = "INVALID_SETTING"


class InvalidPartitionCount(InvalidTopic):
    """More partitions than a topic may have, or none."""

    code = "INVALID_PARTITIONS"


class InvalidReplicationFactor(InvalidTopic):
    """More replicas than there are nodes, or none."""

    code = "INVALID_REPLICATION_FACTOR"


class InvalidRecords(LogError):
    """Records whose columns an append does not accept, or that are too large for one batch."""

    code = "INVALID_RECORDS"


class RejectedRecords(InvalidRecords):
    """The topic does not accept some records of a batch. `reasons`: by the record's position in the batch, from 0."""

    code = "REJECTED_RECORDS"

    reasons: Mapping[int, str] = MappingProxyType({})

    @classmethod
    def of(cls, reasons: Mapping[int, str]) -> Self:
        shown = ", ".join(f"record {number}: {reason}" for number, reason in list(reasons.items())[:_SHOWN_MAX])
        more = f", and {len(reasons) - _SHOWN_MAX} more" if len(reasons) > _SHOWN_MAX else ""
        error = cls(f"{len(reasons)} records are rejected, and their batch with them: {shown}{more}")
        error.reasons = reasons
        return error


class InvalidTimestamps(RejectedRecords):
    """Records whose timestamps are further from the time of the append than the topic allows."""

    code = "INVALID_TIMESTAMPS"


class RecordsTooLarge(LogError):
    """A record batch larger than the topic accepts from clients."""

    code = "RECORDS_TOO_LARGE"


class ReadOnlyTopic(LogError):
    """Only a mirror may write to the topic."""

    code = "READ_ONLY_TOPIC"


class OffsetOutOfRange(LogError):
    """A fetch before the log start offset or after the log end offset."""

    code = "OFFSET_OUT_OF_RANGE"


class ProducerFenced(LogError):
    """A newer producer has acquired the transactional id."""

    code = "PRODUCER_FENCED"


class OutOfOrderSequence(LogError):
    """A producer's batch does not follow its previous one: batches between them are missing."""

    code = "OUT_OF_ORDER_SEQUENCE"


class InvalidTransactionState(LogError):
    """A call that is not allowed in the transaction's state, such as an append before `begin`."""

    code = "INVALID_TRANSACTION_STATE"


class LogLocked(LogError):
    """Another process has the data directory open."""

    code = "LOG_LOCKED"


class LogClosed(LogError):
    code = "LOG_CLOSED"


class LogUnavailable(LogError):
    """The log's server cannot be reached, or the connection broke. Requests in flight may or may not have taken
    effect."""

    code = "LOG_UNAVAILABLE"


class NotNow(LogError):
    """This node of a cluster cannot do it now; another node may, or this one later. `problem`: Kafka's error code."""

    code = "NOT_NOW"

    def __init__(self, problem: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.problem = problem


class LogFull(LogError):
    """No space left to write. Acknowledged records are safe; refused records are not in the log."""

    code = "LOG_FULL"


class LogWriteFailed(LogError):
    """The disk refused a write or a sync. Acknowledged records are safe; refused records are not in the log."""

    code = "LOG_WRITE_FAILED"


class CorruptLog(LogError):
    """Stored bytes are not what was written. The message names the file and the position."""

    code = "CORRUPT_LOG"


class UnsupportedDataDirectory(LogError):
    """The data directory was written in a format that this version does not know."""

    code = "UNSUPPORTED_DATA_DIRECTORY"


class UnusableDataDirectory(LogError):
    """The data directory cannot be created, read or written: for example, it is a file or belongs to another user."""

    code = "UNUSABLE_DATA_DIRECTORY"


WAYS_OUT: Final[dict[type[LogError], str]] = {
    ReadOnlyTopic: "PROMOTE MIRROR makes the topics of a mirror writable; SHOW MIRRORS lists the mirrors.",
    LogFull: "Free disk space, delete topics that are no longer needed, or raise the quota; then append again.",
    LogWriteFailed: ("Check the disk and the system's log. The records were not stored and can be appended again."),
}


def write_error(error: OSError, what: str) -> LogError:
    """The error that an append raises when the operating system refused the write."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in FULL:
        return LogFull(f"no room to write {what}: {reason.lower()}", hint=WAYS_OUT[LogFull])
    return LogWriteFailed(f"the disk refused to write {what}: {reason.lower()}", hint=WAYS_OUT[LogWriteFailed])


def unusable_directory(error: OSError, path: Path) -> LogError:
    """The error of a data directory that cannot be opened."""
    reason = (os.strerror(error.errno) if error.errno else str(error)).lower()
    if error.errno in FULL:
        hint = "Free disk space, or raise the quota, then start again: a start writes some kilobytes there."
        return LogFull(f"no room to write to the data directory {path}: {reason}", hint=hint)
    file = "" if error.filename is None or Path(os.fsdecode(error.filename)) == path else f"{error.filename}: "
    hint = "Name another folder, or give the user of this process the right to write there."
    if error.errno == errno.EIO:
        hint = "Check the disk and the system's log."
    return UnusableDataDirectory(f"the data directory {path} cannot be used: {file}{reason}", hint=hint)
