"""Dispatches requests: checks API and version, calls the handler, and encodes its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

import structlog

from ..error_codes import ErrorCode
from ..records.batch import Buffer
from .connection import Answer, HangUp, KafkaRequest
from .kafka_service import Desk, KafkaService
from .requests.acl_requests import create_acls, delete_acls, describe_acls
from .requests.admin_requests import (
    alter_partition_reassignments,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    list_config_resources,
    list_partition_reassignments,
)
from .requests.config_requests import alter_configs, describe_configs, incremental_alter_configs
from .requests.consumer_group_requests import consumer_group_describe, consumer_group_heartbeat
from .requests.group_requests import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_delete,
    sync_group,
)
from .requests.offset_requests import (
    find_coordinator,
    list_offsets,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
)
from .requests.quorum_requests import describe_quorum
from .requests.quota_requests import alter_client_quotas, describe_client_quotas
from .requests.record_requests import answer_fetch
from .requests.sasl_requests import sasl_authenticate, sasl_handshake
from .requests.scram_requests import alter_user_scram_credentials, describe_user_scram_credentials
from .requests.share_group_requests import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_group_describe,
    share_group_heartbeat,
)
from .requests.share_record_requests import answer_share_fetch, release_ended, share_acknowledge
from .requests.topic_requests import (
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    metadata,
)
from .requests.transaction_requests import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from .security.access import ASKS
from .security.peer import Peer
from .wire import messages
from .wire.apis import CAME_WITH, KNOWN, Api
from .wire.messages import Fields

_log = structlog.get_logger("millstream.logcore")

HANDLERS: Final[dict[Api, Callable[[Desk, Any, Peer], Fields]]] = {
    Api.HEARTBEAT: heartbeat,
    Api.LEAVE_GROUP: leave_group,
    Api.DESCRIBE_GROUPS: describe_groups,
    Api.LIST_GROUPS: list_groups,
    Api.DELETE_GROUPS: delete_groups,
    Api.OFFSET_DELETE: offset_delete,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    Api.SASL_HANDSHAKE: sasl_handshake,
    Api.DELETE_RECORDS: delete_records,
    Api.CREATE_PARTITIONS: create_partitions,
    Api.ALTER_CONFIGS: alter_configs,
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    Api.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
    Api.DESCRIBE_CLUSTER: describe_cluster,
    Api.DESCRIBE_QUORUM: describe_quorum,
    Api.WRITE_TXN_MARKERS: write_txn_markers,
    Api.DESCRIBE_PRODUCERS: describe_producers,
    Api.LIST_TRANSACTIONS: list_transactions,
    Api.DESCRIBE_TRANSACTIONS: describe_transactions,
    Api.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
    Api.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
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
    Api.ALTER_CLIENT_QUOTAS: alter_client_quotas,
    Api.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    Api.CREATE_ACLS: create_acls,
    Api.DELETE_ACLS: delete_acls,
    Api.DESCRIBE_ACLS: describe_acls,
    Api.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
    Api.DESCRIBE_LOG_DIRS: describe_log_dirs,
    Api.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
    Api.ELECT_LEADERS: elect_leaders,
    Api.LIST_CONFIG_RESOURCES: list_config_resources,
    Api.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    Api.SHARE_GROUP_HEARTBEAT: share_group_heartbeat,
    Api.SHARE_GROUP_DESCRIBE: share_group_describe,
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: describe_share_group_offsets,
    Api.ALTER_SHARE_GROUP_OFFSETS: alter_share_group_offsets,
    Api.DELETE_SHARE_GROUP_OFFSETS: delete_share_group_offsets,
}

_NAMING: Final = frozenset(
    {
        Api.JOIN_GROUP,
        Api.SYNC_GROUP,
        Api.HEARTBEAT,
        Api.LEAVE_GROUP,
        Api.OFFSET_COMMIT,
        Api.OFFSET_DELETE,
        Api.DELETE_GROUPS,
        Api.CONSUMER_GROUP_HEARTBEAT,
        Api.SHARE_GROUP_HEARTBEAT,
        Api.SHARE_FETCH,
        Api.SHARE_ACKNOWLEDGE,
        Api.ALTER_SHARE_GROUP_OFFSETS,
        Api.DELETE_SHARE_GROUP_OFFSETS,
        Api.INIT_PRODUCER_ID,
        Api.ADD_PARTITIONS_TO_TXN,
        Api.ADD_OFFSETS_TO_TXN,
        Api.TXN_OFFSET_COMMIT,
        Api.END_TXN,
    }
)
"""Requests that are refused if they name something reserved for Millstream. A Produce may be one, too."""

_BYTES_MAX: Final = 16 * 1024 * 1024
"""The limit for a request without records: its content may have to fit, with more, into a record or a frame between
nodes."""

_BEFORE_LOGIN: Final = (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)

WAITING_HANDLERS: Final[dict[Api, Callable[[Desk, Any, Peer], Coroutine[Any, Any, Fields]]]] = {
    Api.JOIN_GROUP: join_group,
    Api.SYNC_GROUP: sync_group,
}
"""Handlers whose answers depend on what other clients do."""


async def answer(broker: KafkaService, request: KafkaRequest) -> Answer:
    """Raises `HangUp` if there is no sensible answer, `MalformedMessage` if the bytes are not a request."""
    number, version = request.header.api, request.header.version
    if number not in KNOWN or Api(number) not in ASKS:
        raise HangUp(f"request {number} of the Kafka protocol is not supported")
    api = Api(number)
    if api is Api.API_VERSIONS:
        return _ready(_answer_api_versions(version, broker.layout.cluster_version))
    await broker.ready()
    if request.peer.refused or not (api in _BEFORE_LOGIN or broker.lets_in(request.peer)):
        raise HangUp("it has not shown who it is")
    if api in _NAMING:
        await broker.wait_for_names(request.peer)
    if api is not Api.PRODUCE and len(request.message) > _BYTES_MAX:
        raise HangUp(f"a {api.name.lower()} request of {len(request.message)} bytes")
    if CAME_WITH.get(api, 1) > broker.layout.cluster_version:
        raise HangUp(f"{api.name.lower()} requests are not supported before the cluster is upgraded")
    if version not in KNOWN[api]:
        raise HangUp(f"version {version} of {api.name.lower()} requests is not supported")
    match api:
        case Api.PRODUCE:
            return await broker.produce(broker, request)
        case Api.FETCH:
            return _ready(await answer_fetch(broker, request))
        case Api.SHARE_FETCH:
            return _ready(await answer_share_fetch(broker, request))
        case Api.SHARE_ACKNOWLEDGE:
            asked = messages.read_request(api, version, request.message, request.position)
            fields = await share_acknowledge(broker, asked, request.peer)
            return _ready([messages.write_response(api, version, fields)])
        case Api.SASL_AUTHENTICATE:
            asked = messages.read_request(api, version, request.message, request.position)
            async with broker.logins:
                fields = await broker.blocking(partial(sasl_authenticate, broker, asked, request.peer))
            return _ready([messages.write_response(api, version, fields)])
        case Api.JOIN_GROUP | Api.SYNC_GROUP:
            asked = messages.read_request(api, version, request.message, request.position)
            return asyncio.ensure_future(_wait_for(api, version, WAITING_HANDLERS[api](broker, asked, request.peer)))
        case _:
            asked = messages.read_request(api, version, request.message, request.position)
            fields = await broker.blocking(partial(HANDLERS[api], broker, asked, request.peer))
            return _ready([messages.write_response(api, version, fields)])


def ended(broker: KafkaService, peer: Peer) -> None:
    """Called when a connection is closed: releases the records that members of share groups acquired over it."""
    for member, places in () if broker.ends else broker.share_sessions.end_of(peer.id):
        broker.keep(release_ended(broker, member, places))


async def _wait_for(api: Api, version: int, fields: Awaitable[Fields]) -> list[Buffer] | None:
    return [messages.write_response(api, version, await fields)]


def _answer_api_versions(version: int, cluster_version: int) -> list[Buffer]:
    """A client with a newer version gets an answer in the oldest version, as the protocol defines, and asks again."""
    if version in KNOWN[Api.API_VERSIONS]:
        return [messages.write_response(Api.API_VERSIONS, version, api_versions(cluster_version))]
    return [messages.write_response(Api.API_VERSIONS, 0, api_versions(cluster_version, ErrorCode.unsupported_version))]


def _ready(body: list[Buffer]) -> asyncio.Future[list[Buffer] | None]:
    future: asyncio.Future[list[Buffer] | None] = asyncio.get_running_loop().create_future()
    future.set_result(body)
    return future
