"""Incoming requests: checks before anything runs, and the parsed body."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

import orjson
from starlette.requests import ClientDisconnect, HTTPConnection, Request

from millstream.errors import StatementError

from ..config.denied_properties import refuse_denied
from ..config.properties import settable_property, text_of
from ..engine.session import Session
from ..security.rights import Rights
from .errors import (
    BAD_REQUEST,
    FORBIDDEN,
    NOT_ACCEPTABLE,
    TIMEOUT,
    TOO_LARGE,
    WRONG_CONTENT_TYPE,
    RequestRefused,
)

BODY_SECONDS_MAX: Final = 30.0
_VARIABLES_MAX: Final = 1000
_ANY: Final = ("*/*", "application/*")
_FORM: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class StatementRequest:
    """The statements and the session that a request contains."""

    text: str
    session: Session


async def read_object(request: Request, body_bytes_max: int, such_as: str = '{"ksql": "…;"}') -> dict[str, Any]:
    """The JSON object of a POST. In: `such_as`: what others are told to send. Raises `RequestRefused`."""
    content_type = _content_type(request)
    # curl -d sends the form type by default; a page that posts a real form is refused.
    if not (content_type in ("application/json", _FORM) or content_type.endswith("+json")):
        raise _wrong_type(content_type, "application/json")
    body = await _body_in_time(request, body_bytes_max)
    try:
        value = orjson.loads(body)
    except ValueError as error:
        raise RequestRefused(BAD_REQUEST, f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestRefused(BAD_REQUEST, "the body is not a JSON object", hint=f"Send one such as {such_as}.")
    return value


async def read_json(request: Request, body_bytes_max: int) -> tuple[str, bytes]:
    """Content type (empty if missing) and body of a request of any method; the type has to be a JSON type. Raises
    `RequestRefused`."""
    content_type = _content_type(request) if "content-type" in request.headers else ""
    if not (content_type in ("", "application/json", _FORM) or content_type.endswith("+json")):
        raise _wrong_type(content_type, "application/json")
    refuse_foreign(request)
    return content_type, await _body_in_time(request, body_bytes_max)


async def read_bytes(request: Request, content_type: str, body_bytes_max: int) -> bytes:
    """The body of a POST of that type. Raises `RequestRefused`."""
    found = _content_type(request)
    if found != content_type:
        raise _wrong_type(found, content_type)
    return await _body_in_time(request, body_bytes_max)


async def read_any(request: Request, body_bytes_max: int) -> bytes:
    """The body, of any content type. Raises `RequestRefused`."""
    refuse_foreign(request)
    return await _body_in_time(request, body_bytes_max)


def statement_request(body: Mapping[str, Any], rights: Rights, denied: Set[str]) -> StatementRequest:
    """Reads `ksql` or `sql`, `streamsProperties` or `properties`, `sessionVariables`. In: `rights`: of the user. Raises
    `RequestRefused`."""
    text = body.get("ksql", body.get("sql"))
    if not isinstance(text, str):
        raise RequestRefused(BAD_REQUEST, 'the body needs a text under "ksql" (or "sql")')
    session = Session(rights=rights)
    set_properties(body, session, denied)
    for name, value in _scalars(body, "sessionVariables").items():
        session.define(name, text_of(value))
    return StatementRequest(text, session)


def set_properties(body: Mapping[str, Any], session: Session, denied: Set[str]) -> None:
    """Reads `streamsProperties` or `properties`. In: `denied`: properties that the server's configuration denies to
    clients.

    Raises `RequestRefused`.
    """
    for member in ("streamsProperties", "properties"):
        for name, value in _scalars(body, member).items():
            try:
                entry = settable_property(name)
                refuse_denied(entry.name, denied)
                session.properties[entry.name] = entry.check(text_of(value))
            except StatementError as error:
                raise RequestRefused(BAD_REQUEST, error.message, hint=error.hint) from None


def awaited_command(body: Mapping[str, Any]) -> int:
    """`commandSequenceNumber`: the command that must be applied first; -1 is none. Raises `RequestRefused`."""
    number = body.get("commandSequenceNumber")
    if number is None:
        return -1
    if isinstance(number, bool) or not isinstance(number, int):
        raise RequestRefused(BAD_REQUEST, '"commandSequenceNumber" is not a whole number')
    return number


def refuse_foreign(request: HTTPConnection) -> None:
    """Raises `RequestRefused` for requests from web pages, and for compressed bodies."""
    # Browsers send the origin of the page, and none of our pages sends requests here. So the user did not intend this
    # page to run statements. Programs do not send the header.
    if "origin" in request.headers:
        raise RequestRefused(FORBIDDEN, "requests from web pages are not accepted")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise RequestRefused(WRONG_CONTENT_TYPE, f'the content encoding "{encoding}" is not supported')


def _scalars(body: Mapping[str, Any], member: str) -> dict[str, Any]:
    value = body.get(member)
    if value is None:
        return {}
    if not isinstance(value, dict) or any(isinstance(item, (dict, list)) or item is None for item in value.values()):
        raise RequestRefused(BAD_REQUEST, f'"{member}" is not an object of texts, numbers and booleans')
    if len(value) > _VARIABLES_MAX:
        raise RequestRefused(BAD_REQUEST, f'"{member}" has more than {_VARIABLES_MAX} members')
    return value


def _content_type(request: Request) -> str:
    """Raises `RequestRefused` for requests from web pages, and for compressed bodies."""
    refuse_foreign(request)
    return request.headers.get("content-type", _FORM).partition(";")[0].strip().lower()


def _wrong_type(found: str, wanted: str) -> RequestRefused:
    return RequestRefused(WRONG_CONTENT_TYPE, f'the content type "{found}" is not supported', hint=f"Send {wanted}.")


async def _body_in_time(request: Request, body_bytes_max: int) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            return await _read_body(request, body_bytes_max)
    except TimeoutError:
        raise RequestRefused(TIMEOUT, f"the request did not arrive within {BODY_SECONDS_MAX:.0f} seconds") from None
    except ClientDisconnect:
        raise RequestRefused(BAD_REQUEST, "the client disconnected") from None


async def _read_body(request: Request, body_bytes_max: int) -> bytes:
    declared = request.headers.get("content-length", "0")
    body = bytearray()
    if not declared.isdecimal() or int(declared) <= body_bytes_max:
        async for chunk in request.stream():
            body += chunk
            if len(body) > body_bytes_max:
                break
        else:
            return bytes(body)
    raise RequestRefused(TOO_LARGE, f"the body is larger than {body_bytes_max} bytes")


def accepted_types(accept: str) -> list[str]:
    """The media types of the header, highest preference first; `*/*` if it is empty.

    >>> accepted_types("text/html;q=0.5, application/JSON, text/xml;q=0"), accepted_types("")
    (['application/json', 'text/html'], ['*/*'])
    """
    weighted: list[tuple[float, str]] = []
    for part in accept.lower().split(","):
        type_, *parameters = (piece.strip() for piece in part.split(";"))
        weight = next((_weight_of(each[2:]) for each in parameters if each.startswith("q=")), 1.0)
        if type_ and weight > 0:
            weighted.append((weight, type_))
    return [type_ for _, type_ in sorted(weighted, key=lambda each: -each[0])] or ["*/*"]


def check_acceptable(accept: str, offered: Collection[str]) -> None:
    """Raises `RequestRefused` (406) if the client accepts none of the offered types."""
    wanted = accepted_types(accept)
    if not any(type_ in _ANY or type_ in offered for type_ in wanted):
        raise RequestRefused(
            NOT_ACCEPTABLE,
            f"there is no answer of the type {' or '.join(wanted)}"[:500],
            hint=f"The types are {', '.join(offered)}.",
        )


def _weight_of(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0
