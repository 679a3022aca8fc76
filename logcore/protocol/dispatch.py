"""From a request to its answer: which handler, which version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import structlog
from kio.schema.errors import ErrorCode

from ..records.batch import Buffer
from . import messages
from .apis import KNOWN, Api
from .broker import Broker
from .connection import Answer, HangUp, Request
from .messages import Fields
from .offset_requests import find_coordinator, list_offsets, offset_commit, offset_fetch
from .record_requests import answer_fetch, answer_produce
from .topic_requests import api_versions, create_topics, delete_topics, describe_configs, metadata
from .transaction_requests import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)

_log = structlog.get_logger("millstream.logcore")

_HANDLERS: Final[dict[Api, Callable[[Broker, Any, tuple[str, int]], Fields]]] = {
    Api.LIST_OFFSETS: list_offsets,
    Api.METADATA: metadata,
    Api.OFFSET_COMMIT: offset_commit,
    Api.OFFSET_FETCH: offset_fetch,
    Api.FIND_COORDINATOR: find_coordinator,
    Api.CREATE_TOPICS: create_topics,
    Api.DELETE_TOPICS: delete_topics,
    Api.INIT_PRODUCER_ID: init_producer_id,
    Api.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    Api.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    Api.END_TXN: end_txn,
    Api.TXN_OFFSET_COMMIT: txn_offset_commit,
    Api.DESCRIBE_CONFIGS: describe_configs,
}


async def answer(broker: Broker, request: Request) -> Answer:
    """Raises `HangUp` for what has no answer, `MalformedMessage` for bytes that are no request."""
    number, version = request.header.api, request.header.version
    if number not in KNOWN:
        raise HangUp(f"request {number} of the Kafka protocol is not supported")
    api = Api(number)
    if api is Api.API_VERSIONS:
        return _ready(_answer_api_versions(version))
    if version not in KNOWN[api]:
        raise HangUp(f"version {version} of {api.name.lower()} requests is not supported")
    match api:
        case Api.PRODUCE:
            return await answer_produce(broker, request)
        case Api.FETCH:
            return _ready(await answer_fetch(broker, request))
        case _:
            asked = messages.read_request(api, version, request.message, request.position)
            fields = await broker.blocking(partial(_HANDLERS[api], broker, asked, request.local))
            return _ready([messages.write_response(api, version, fields)])


def _answer_api_versions(version: int) -> list[Buffer]:
    """A client of a newer version gets an answer in the oldest, as the protocol has it, and asks again."""
    if version in KNOWN[Api.API_VERSIONS]:
        return [messages.write_response(Api.API_VERSIONS, version, api_versions())]
    return [messages.write_response(Api.API_VERSIONS, 0, api_versions(ErrorCode.unsupported_version))]


def _ready(body: list[Buffer]) -> asyncio.Future[list[Buffer] | None]:
    future: asyncio.Future[list[Buffer] | None] = asyncio.get_running_loop().create_future()
    future.set_result(body)
    return future
