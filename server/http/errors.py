"""Errors as the HTTP API sends them: ksqlDB's object and codes, with our message, position and hint."""

from __future__ import annotations

import uuid
from typing import Any

import structlog

from millstream.errors import LogError, MillstreamError, ServerError, Span, StatementError

from ...executor.answers.pull_limits import PullLimitExceeded
from ...logcore.errors import (
    InvalidTimestamps,
    InvalidTopic,
    LogClosed,
    ProducerFenced,
    ReadOnlyTopic,
    TopicExists,
    UnknownTopic,
)
from ...sql.splitting import split_tokens
from ...sql.tokens import token_span, tokenize
from ..engine.entities import Entity
from ..engine.print_topic import UnknownTopicPrinted
from ..engine.queries import PushLimitExceeded
from ..handlers.assertions import AssertionFailed
from ..security.rights import NotPermitted
from ..security.statement_secrets import without_secrets

_log = structlog.get_logger("millstream.server")

BAD_REQUEST = 40000
BAD_STATEMENT = 40001
USE_QUERY = 40002
TOO_MANY_PUSH_QUERIES = 40003
UNAUTHORIZED = 40100
FORBIDDEN = 40300
NOT_FOUND = 40400
METHOD_NOT_ALLOWED = 40500
NOT_ACCEPTABLE = 40600
TIMEOUT = 40800
TOO_LARGE = 41300
WRONG_CONTENT_TYPE = 41500
ASSERTION_FAILED = 41700
MISDIRECTED = 42100
TOO_MANY_REQUESTS = 42900
HEADERS_TOO_LARGE = 43100
INTERNAL = 50000
COMMAND_TIMEOUT = 50301
NOT_READY = 50302
SHUTTING_DOWN = 50303
NO_ENGINE = 50304
ENGINE_MOVED = 50305

ENDS = "the server is shutting down, or the engine moves to another node"

RETRY_AFTER_S = 1
"""The header retry-after of 503 answers: another engine is found, or started, within seconds."""

_MESSAGE_MAX = 4000  # a caret below a line of a megabyte is useless
_USERS_MISTAKES = (
    StatementError,
    PullLimitExceeded,
    PushLimitExceeded,
    UnknownTopicPrinted,
    TopicExists,
    UnknownTopic,
    InvalidTopic,
    InvalidTimestamps,
    ReadOnlyTopic,
)


class RequestRefused(ServerError):
    """A request that is refused before anything runs. `error_code` is ksqlDB's: its first three digits are the HTTP
    status."""

    code = "REQUEST_REFUSED"

    def __init__(self, error_code: int, message: str, *, hint: str | None = None, text: str | None = None) -> None:
        super().__init__(message, hint=hint, text=text)
        self.error_code = error_code


def error_code_of(error: BaseException) -> int:
    """ksqlDB's five digits; the first three are the HTTP status."""
    match error:
        case RequestRefused():
            return error.error_code
        case NotPermitted():
            return FORBIDDEN
        case AssertionFailed():
            return ASSERTION_FAILED
        case LogClosed():
            return SHUTTING_DOWN
        case ProducerFenced():
            return ENGINE_MOVED
        case _ if isinstance(error, _USERS_MISTAKES):
            return BAD_STATEMENT
        case _:
            return INTERNAL


def error_body(error: BaseException, text: str | None = None, done: list[Entity] | None = None) -> dict[str, Any]:
    """The JSON object. In: `text`: the statements that were sent. `done`: the answers of those that ran before the
    failing one.

    An unexpected error is logged under a number, and the client only gets the number.
    """
    code = error_code_of(error)
    body: dict[str, Any] = {"@type": "generic_error", "error_code": code, "message": message_of(error)}
    if isinstance(error, StatementError | UnknownTopicPrinted) or (isinstance(error, LogError) and text):
        body["@type"] = "statement_error"
        body["statementText"] = (
            "" if text is None else without_secrets(statement_at(_about(error, text), getattr(error, "span", None)))
        )
        body["entities"] = [entity.as_json() for entity in done or []]
    return body


def _about(error: BaseException, text: str) -> str:
    """The text that the error's span refers to: with variables, the statement as it was run."""
    spoken = isinstance(error, MillstreamError) and error.span is not None and error.text
    return spoken or text


def message_of(error: BaseException) -> str:
    """The text for people: message, position, hint."""
    if not isinstance(error, MillstreamError):
        number = uuid.uuid4().hex[:12]
        _log.error("request failed", number=number, exc_info=error)
        return f"internal error; see {number} in the server's log"
    rendered = error.render().removeprefix("error: ")
    if len(rendered) <= _MESSAGE_MAX:
        return rendered
    short = error.message if len(error.message) <= _MESSAGE_MAX else error.message[:_MESSAGE_MAX] + "…"
    place = error.line_and_column
    return short if place is None else f"{short} (line {place[0]}, column {place[1]})"


def statement_at(text: str, span: Span | None) -> str:
    """The statement that contains the span, with its `;`; the whole text if the statement is unknown.

    >>> statement_at("SHOW STREAMS; SELECT a FROM b;", Span(21, 22))
    'SELECT a FROM b;'
    """
    groups = split_tokens(tokenize(text))
    if span is None and len(groups) != 1:
        return text
    for group in groups:
        start, end = token_span(group[0]).start, token_span(group[-1]).end
        if span is None or start <= span.start < end:
            return f"{text[start:end]};"
    return text
