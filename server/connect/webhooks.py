"""`POST /hooks/<connector>`: a delivery to a `webhook` connector, answered once its records are committed."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...executor.connect.connector_errors import UnknownConnectorTask
from ...executor.connect.inbox import Delivery, Inbox, Settlement
from ..http.context import HttpContext
from ..http.errors import (
    BAD_REQUEST,
    NOT_FOUND,
    SHUTTING_DOWN,
    TOO_LARGE,
    TOO_MANY_REQUESTS,
    UNAUTHORIZED,
    RequestRefused,
)
from ..http.requests import read_any
from ..http.statements import error_response, json_response

_ANSWER_S: Final = 25.0
_CODES: Final = {
    "refused": UNAUTHORIZED,
    "not meant": BAD_REQUEST,
    "too large": TOO_LARGE,
    "unavailable": SHUTTING_DOWN,
}


def webhook_route(context: HttpContext) -> Route:
    async def deliver(request: Request) -> Response:
        try:
            return _answer(await _settled(context, request))
        except RequestRefused as refusal:
            return error_response(refusal)

    return Route("/hooks/{name}", deliver, methods=["POST"])


async def _settled(context: HttpContext, request: Request) -> Settlement:
    inbox = _inbox(context, request.path_params["name"])
    limit = inbox.body_bytes_max
    if limit is None:
        raise _not_now()
    headers = {name.lower(): value for name, value in request.headers.items()}
    delivery = Delivery(headers, await read_any(request, min(limit, context.body_bytes_max)))
    if not inbox.put(delivery):
        raise RequestRefused(TOO_MANY_REQUESTS, "too many deliveries wait for this connector")
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await asyncio.wrap_future(delivery.settled)
    except TimeoutError:
        raise _not_now() from None


def _inbox(context: HttpContext, name: str) -> Inbox:
    """The inbox of a connector that receives deliveries. Names may be in any case, as in statements."""
    for candidate in (name, name.upper()):
        try:
            found = context.engine.connectors.inbox(candidate)
        except UnknownConnectorTask:
            continue
        if found is not None:
            return found
    raise RequestRefused(NOT_FOUND, "there is no web hook of this name")


def _answer(settlement: Settlement) -> Response:
    if settlement.outcome in ("committed", "known"):
        return json_response({"records": settlement.records, "known": settlement.outcome == "known"}, 200)
    if settlement.outcome == "unavailable":
        raise _not_now()
    raise RequestRefused(_CODES[settlement.outcome], settlement.why)


def _not_now() -> RequestRefused:
    return RequestRefused(SHUTTING_DOWN, "the connector takes nothing now", hint="Send the delivery again.")
