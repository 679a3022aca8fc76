"""Converts our errors to the protocol's codes, and back. Where an answer has a message, it contains the details."""

from __future__ import annotations

from typing import Final

from millstream.errors import LogError

from ...error_codes import ErrorCode
from ...errors import (
    WAYS_OUT,
    CorruptLog,
    InconsistentTopicId,
    InvalidPartitionCount,
    InvalidRecords,
    InvalidReplicationFactor,
    InvalidSetting,
    InvalidTimestamps,
    InvalidTopic,
    InvalidTransactionState,
    LogClosed,
    LogFull,
    LogUnavailable,
    LogWriteFailed,
    NotNow,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
    ReadOnlyTopic,
    RecordsTooLarge,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from ..incoming import CorruptRecords
from ..retries import RETRIABLE
from ..security.access import NotAllowed, OnlyForAdministrators
from ..setting_limits import TooManySettings

_CODES: Final[dict[type[LogError], ErrorCode]] = {
    CorruptRecords: ErrorCode.corrupt_message,
    InconsistentTopicId: ErrorCode.inconsistent_topic_id,
    UnknownTopicId: ErrorCode.unknown_topic_id,
    UnknownTopic: ErrorCode.unknown_topic_or_partition,
    TopicExists: ErrorCode.topic_already_exists,
    InvalidReplicationFactor: ErrorCode.invalid_replication_factor,
    InvalidSetting: ErrorCode.invalid_config,
    InvalidPartitionCount: ErrorCode.invalid_partitions,
    InvalidTopic: ErrorCode.invalid_topic_exception,
    InvalidTimestamps: ErrorCode.invalid_timestamp,
    InvalidRecords: ErrorCode.invalid_record,
    RecordsTooLarge: ErrorCode.message_too_large,
    OffsetOutOfRange: ErrorCode.offset_out_of_range,
    ProducerFenced: ErrorCode.invalid_producer_epoch,
    OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    InvalidTransactionState: ErrorCode.invalid_txn_state,
    TooManySettings: ErrorCode.policy_violation,
    ReadOnlyTopic: ErrorCode.policy_violation,
    NotAllowed: ErrorCode.topic_authorization_failed,
    OnlyForAdministrators: ErrorCode.cluster_authorization_failed,
    LogClosed: ErrorCode.leader_not_available,
    LogFull: ErrorCode.kafka_storage_error,
    LogWriteFailed: ErrorCode.kafka_storage_error,
    CorruptLog: ErrorCode.corrupt_message,
}
_MESSAGE_CHARACTERS_MAX: Final = 1_000
_NAMES: Final = {kind.code: kind for kind in (*_CODES, LogUnavailable) if kind is not LogClosed}
"""Our errors by code. `LogClosed` is left out: if a server closes its log, the client's own is not closed, and another
server may take over soon."""

_CLASSES: Final[dict[ErrorCode, type[LogError]]] = {
    **{code: kind for kind, code in _CODES.items()},
    ErrorCode.corrupt_message: CorruptLog,
    ErrorCode.kafka_storage_error: LogWriteFailed,
    ErrorCode.producer_fenced: ProducerFenced,
    ErrorCode.invalid_producer_id_mapping: ProducerFenced,
    ErrorCode.unknown_topic_id: UnknownTopic,
    ErrorCode.record_list_too_large: RecordsTooLarge,
    ErrorCode.unstable_offset_commit: LogUnavailable,
    ErrorCode.leader_not_available: LogUnavailable,
    ErrorCode.not_leader_or_follower: LogUnavailable,
    ErrorCode.coordinator_not_available: LogUnavailable,
}


def code_of(error: LogError) -> ErrorCode:
    if isinstance(error, NotNow):
        return ErrorCode(error.problem)
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return ErrorCode.unknown_server_error


def coordinator_code_of(error: LogError) -> ErrorCode:
    """`code_of` for requests to a coordinator: if the log was closed, the client should retry."""
    return ErrorCode.coordinator_not_available if isinstance(error, LogClosed) else code_of(error)


def message_of(error: LogError) -> str:
    """The error's text for a response. It begins with our own code, because several of our errors share one code of the
    protocol. The hint is a separate line."""
    if isinstance(error, NotNow):
        return sayable(error.message)
    lines = [f"{error.code}: {error.message}", *([error.hint] if error.hint else [])]
    return "\n".join(sayable(line.replace("\n", " ")) for line in lines)


def sayable(text: str) -> str:
    """Cuts a text to fit into a response: it may quote what a client has sent, which alone could fill a field."""
    return text if len(text) <= _MESSAGE_CHARACTERS_MAX else f"{text[:_MESSAGE_CHARACTERS_MAX]} …"


def error_of(code: int, message: str | None, what: str) -> LogError:
    """The error that a client raises for this code of an answer. In: `what`: what the client wanted."""
    name, separator, text = (message or "").partition(": ")
    if separator and name in _NAMES:
        kind = _NAMES[name]
        told, ends, hint = text.rpartition("\n")
        return kind(told, hint=hint) if ends else kind(text, hint=WAYS_OUT.get(kind))
    try:
        known = ErrorCode(code)
    except ValueError:
        return LogError(f"cannot {what}: the server answered with error {code}")
    kind = _CLASSES.get(known, LogUnavailable if code in RETRIABLE else LogError)
    return kind(f"cannot {what}: {message or known.name.replace('_', ' ')}")
