"""Errors in the form of the REST proxy: `error_code` and `message`, with Confluent's numbers."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from millstream.errors import LogError, ServerError, StatementError

from ...executor.formats.wire import Unreadable, Unwritable
from ...logcore.clients.membership import MembershipRefused
from ...logcore.errors import (
    InvalidRecords,
    InvalidTopic,
    LogClosed,
    LogFull,
    LogUnavailable,
    LogWriteFailed,
    NotNow,
    ReadOnlyTopic,
    RecordsTooLarge,
    TopicExists,
    UnknownTopic,
)
from ..http.errors import RETRY_AFTER_S, TOO_MANY_REQUESTS, RequestRefused, error_code_of, message_of
from ..http.statements import json_response
from ..registry.bodies import RegistryRefusal
from ..security.rights import NotPermitted

V2_JSON: Final = "application/vnd.kafka.v2+json"
JSON: Final = "application/json"

BAD_REQUEST: Final = 400
INVALID_REQUEST: Final = 40002
FORBIDDEN: Final = 40301
TOPIC_NOT_FOUND: Final = 40401
PARTITION_NOT_FOUND: Final = 40402
UNKNOWN_TOPIC_OR_PARTITION: Final = 40403  # in v3
INSTANCE_NOT_FOUND: Final = 40403  # in v2
UNREADABLE: Final = 40801
FORMAT_MISMATCH: Final = 40601
INSTANCE_EXISTS: Final = 40902
ILLEGAL_STATE: Final = 40903
CONSTRAINT: Final = 422
KEY_SCHEMA_MISSING: Final = 42201
VALUE_SCHEMA_MISSING: Final = 42202
CONVERSION: Final = 42203
INVALID_CONSUMER: Final = 42204
INVALID_SCHEMA: Final = 42205
INVALID_PAYLOAD: Final = 42206
SERIALIZATION: Final = 42207
INVALID_BATCH: Final = 42208
KAFKA_ERROR: Final = 50002
RETRIABLE: Final = 50003

_ROOTS: Final = (["v3"], ["topics"], ["consumers"], ["brokers"])
_RETRIABLE: Final = (LogUnavailable, NotNow, LogClosed, LogFull, LogWriteFailed)


class ProxyRefusal(ServerError):
    """A request that the REST proxy refuses; `number` is Confluent's `error_code`."""

    code = "REST_PROXY"

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


def number_of(error: BaseException) -> int:
    """Confluent's number for an error."""
    match error:
        case ProxyRefusal() | RegistryRefusal():
            return error.number
        case RequestRefused():
            return error.error_code // 100 if error.error_code % 100 == 0 else error.error_code
        case NotPermitted():
            return FORBIDDEN
        case UnknownTopic():
            return UNKNOWN_TOPIC_OR_PARTITION
        case TopicExists() | InvalidTopic() | InvalidRecords() | ReadOnlyTopic():
            return INVALID_REQUEST
        case RecordsTooLarge():
            return 413
        case MembershipRefused():
            return ILLEGAL_STATE
        case StatementError():
            return INVALID_SCHEMA
        case Unwritable():
            return CONVERSION
        case Unreadable():
            return UNREADABLE
        case _ if isinstance(error, _RETRIABLE):
            return RETRIABLE
        case LogError():
            return KAFKA_ERROR
        case _:
            return 500


def status_of(number: int) -> int:
    return number if number < 1000 else number // 100


def text_of_error(error: BaseException) -> str:
    """The text for people; an unexpected error only has a number, which is in the server's log."""
    return str(error) if isinstance(error, Unreadable | Unwritable) else message_of(error)


def body_of(error: BaseException) -> dict[str, object]:
    return {"error_code": number_of(error), "message": text_of_error(error)}


def refusal(error: BaseException, media_type: str) -> Response:
    """In: `media_type` of the requested version."""
    body = body_of(error)
    response = json_response(body, status_of(number_of(error)), media_type)
    if isinstance(error, RequestRefused) and error_code_of(error) == TOO_MANY_REQUESTS:
        response.headers["retry-after"] = str(RETRY_AFTER_S)
    return response


def is_below_proxy(path: str) -> bool:
    """Whether the REST proxy answers for this path, also if it is none of its routes.

    >>> [is_below_proxy(path) for path in ("/v3/nope", "/topics/t/nope", "/v1/topics/t")]
    [True, True, False]
    """
    return path.split("/")[1:2] in _ROOTS


def media_type_of(path: str) -> str:
    """Of refusals of the version that the path belongs to."""
    return JSON if path.startswith("/v3") else V2_JSON


def no_topic() -> ProxyRefusal:
    return ProxyRefusal(TOPIC_NOT_FOUND, "Topic not found.")


def no_partition() -> ProxyRefusal:
    return ProxyRefusal(PARTITION_NOT_FOUND, "Partition not found.")
