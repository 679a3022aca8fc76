"""Clients that take more than they may are slowed down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log
from millstream.logcore.log_settings import of_client
from millstream.logcore.protocol.channel import Address, Channel
from millstream.logcore.protocol.security.client_quotas import FETCHED, PRODUCED, ClientQuotas
from millstream.logcore.protocol.security.quotas import Meter, Quotas
from millstream.logcore.protocol.wire import fetch_messages as fetch
from millstream.logcore.protocol.wire import produce_messages as produce
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.protocol.wire.fetch_messages import ClientFetch, FetchPosition
from millstream.logcore.protocol.wire.primitives import Reader
from millstream.logcore.protocol.wire.produce_messages import ProduceData, ProduceRequest
from millstream.logcore.records.codec import encode
from millstream.logcore.server import LogServer

from ..log_records import rows

T0 = TopicPartition("t", 0)


def test_a_client_may_save_up_for_a_second() -> None:
    meter = Meter()
    assert meter.note("a", 1000, 1000, now_s=100) == 0
    assert meter.note("a", 500, 1000, now_s=100) == 0.5
    assert meter.note("b", 1000, 1000, now_s=100) == 0
    assert meter.note("a", 0, 1000, now_s=100.5) == 0
    assert meter.note("a", 1_000_000, 1000, now_s=101) == 10


def test_the_quota_that_is_nearest_holds(log: Log) -> None:
    """Who shares a rate: a user's clients do, those of the default client do not."""
    wanted: list[tuple[dict[str, str | None], tuple[str | None, str | None]]] = [
        ({"client-id": None}, (None, "c")),
        ({"client-id": "c"}, (None, "c")),
        ({"user": None}, ("ana", None)),
        ({"user": None, "client-id": None}, ("ana", "c")),
        ({"user": None, "client-id": "c"}, ("ana", "c")),
        ({"user": "ana"}, ("ana", None)),
        ({"user": "ana", "client-id": None}, ("ana", "c")),
        ({"user": "ana", "client-id": "c"}, ("ana", "c")),
    ]
    usual = Quotas(produce_bytes=7)
    assert ClientQuotas(log.served, usual).rate(PRODUCED, "ana", "c", 0) == ("c", 7)
    assert ClientQuotas(log.served, usual).rate(FETCHED, "ana", "c", 0) is None
    for rate, (entity, shared_by) in enumerate(wanted, 1):
        log.served.change_settings(of_client(entity), {PRODUCED: str(float(rate))})
        assert ClientQuotas(log.served, usual).rate(PRODUCED, "ana", "c", 0) == (shared_by, rate)
    assert ClientQuotas(log.served, usual).rate(FETCHED, "ana", "c", 0) is None


def test_a_quota_set_over_the_protocol_slows_a_client_down(log: Log) -> None:
    batch = encode(rows(b"x" * 3000))[0].buffers
    with LogServer(log, port=0) as server:
        channel = Channel(Address("127.0.0.1", server.port))
        log.served.change_settings(of_client({"client-id": None}), {PRODUCED: "2000"})
        sent = ProduceRequest(None, -1, 1000, [ProduceData(T0, batch)])
        waited = throttle_of(channel, Api.PRODUCE, lambda version: produce.write_request(sent, version))
        channel.close()
    assert 400 <= waited <= 800


def test_who_is_slowed_down_is_told_for_how_long(log: Log) -> None:
    batch = encode(rows(b"x" * 3000))[0].buffers
    with LogServer(log, port=0, quotas=Quotas(produce_bytes=2000, fetch_bytes=2000)) as server:
        channel = Channel(Address("127.0.0.1", server.port))
        sent = ProduceRequest(None, -1, 1000, [ProduceData(T0, batch)])
        waited = [throttle_of(channel, Api.PRODUCE, lambda version: produce.write_request(sent, version))]
        wanted = ClientFetch(0, 0, 1 << 20, "read_committed", [FetchPosition(T0, 0, 1 << 20)])
        waited.append(throttle_of(channel, Api.FETCH, lambda version: fetch.write_request(wanted, version)))
        channel.close()
    assert all(400 <= milliseconds <= 800 for milliseconds in waited), waited


def throttle_of(channel: Channel, api: Api, body: Callable[[int], list[Any]]) -> int:
    """A fetch says it first, a produce request last."""
    response = channel.ask(api, body)
    position = response.position if api is Api.FETCH else len(response.message) - 5
    return Reader(response.message, position).int32()
