"""Brokers that go while the engine writes: what became of the record is found out when they are back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from frame_relay import FrameRelay
from waiting import eventually

from millstream.logcore.client import RowRecords
from millstream.logcore.errors import LogClosed, LogUnavailable, ProducerFenced
from millstream.logcore.external.external_log import ExternalLog, ExternalLogSettings
from millstream.logcore.log import Log, open_log
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.server import LogServer
from millstream.server.catalog.command_topic import CommandTopic
from millstream.server.catalog.commands import RemoveType
from millstream.server.cluster import engine_log
from millstream.server.cluster.engine_log import EngineLog

AWAY_S = 1.2
FIRST, SECOND = (RemoveType(statement="", name=name) for name in ("A", "B"))


class Brokers:
    """A log behind a relay, and engines on it. State: which of them were told that they have lost their lease."""

    def __init__(self, log: Log, parts: ExitStack) -> None:
        self.relay = FrameRelay()
        parts.callback(self.relay.close)
        advertised = ("127.0.0.1", self.relay.port)
        self.server = parts.enter_context(LogServer(log, port=0, advertised=advertised))
        self.address_beside = parts.enter_context(LogServer(log, port=0)).address
        self.relay.lead_to(self.server.port)
        self.lost: list[str] = []
        self.log = log
        self._parts = parts
        self.pool = parts.enter_context(ThreadPoolExecutor(2))

    def engine(self, name: str, timeout_ms: int = 60_000) -> EngineLog:
        properties = {"bootstrap.servers": self.relay.address, "transaction.timeout.ms": str(timeout_ms)}
        log = ExternalLog(ExternalLogSettings.of(properties, "x"), patience_s=0.3)
        engine = EngineLog(log, lambda: self.lost.append(name), outlasts=True)
        self._parts.callback(engine.close)
        return engine

    def written_in_an_outage(self, commands: CommandTopic) -> Future[int]:
        """What becomes of a command that was on its way when the brokers went; they are back."""
        answer = self.pool.submit(commands.append, SECOND)
        assert self.relay.gone.wait(10)
        time.sleep(AWAY_S)
        assert not answer.done()
        self.relay.come_back()
        return answer


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with open_log(tmp_path, sync="never") as log, ExitStack() as parts:
        yield Brokers(log, parts)


def commands_on(engine: EngineLog) -> CommandTopic:
    commands = CommandTopic(engine)
    commands.append(FIRST)
    return commands


@pytest.mark.parametrize("api", [Api.END_TXN, Api.FETCH])
def test_a_record_whose_acknowledgement_is_lost_is_there_once(brokers: Brokers, api: Api) -> None:
    commands = commands_on(brokers.engine("one"))
    if api is Api.END_TXN:
        brokers.relay.lose_answer_of(api)
    else:  # it is committed, and the engine looks where
        brokers.relay.lose_question_of(api, after=Api.END_TXN)
    offset = brokers.written_in_an_outage(commands).result(30)
    [_, second] = commands.read_all()
    assert second == (offset, SECOND)
    commands.append(FIRST)
    assert [command for _, command in commands.read_all()] == [FIRST, SECOND, FIRST]
    assert not brokers.lost


@pytest.mark.parametrize("api", [Api.END_TXN, Api.PRODUCE])
def test_a_record_that_did_not_arrive_is_refused_and_may_be_sent_again(brokers: Brokers, api: Api) -> None:
    commands = commands_on(brokers.engine("one"))
    brokers.relay.lose_question_of(api)
    with pytest.raises(LogUnavailable, match="nothing was written"):
        brokers.written_in_an_outage(commands).result(30)
    assert [command for _, command in commands.read_all()] == [FIRST]
    commands.append(SECOND)
    assert [command for _, command in commands.read_all()] == [FIRST, SECOND]
    assert not brokers.lost


def test_a_transaction_that_the_brokers_time_out_meanwhile_is_no_other_engine(brokers: Brokers) -> None:
    commands = commands_on(brokers.engine("one", timeout_ms=1000))
    brokers.relay.lose_question_of(Api.END_TXN)
    answer = brokers.pool.submit(commands.append, SECOND)
    assert brokers.relay.gone.wait(10)
    time.sleep(2.5)
    brokers.relay.come_back()
    with pytest.raises(LogUnavailable, match="nothing was written"):
        answer.result(30)
    commands.append(SECOND)
    assert [command for _, command in commands.read_all()] == [FIRST, SECOND]
    assert not brokers.lost


def test_an_engine_that_another_one_follows_in_the_outage_ends(brokers: Brokers) -> None:
    commands = commands_on(brokers.engine("one"))
    brokers.relay.lose_question_of(Api.END_TXN)
    answer = brokers.pool.submit(commands.append, SECOND)
    assert brokers.relay.gone.wait(10)
    beside = ExternalLogSettings.of({"bootstrap.servers": brokers.address_beside}, "x")
    follower = EngineLog(ExternalLog(beside), lambda: brokers.lost.append("two"), outlasts=True)
    brokers.relay.come_back()
    with pytest.raises(ProducerFenced):
        answer.result(30)
    assert brokers.lost == ["one"]
    assert [command for _, command in CommandTopic(follower).read_all()] == [FIRST]
    follower.check_lease()
    follower.close()


def test_a_record_that_brokers_do_not_show_for_long_is_waited_for(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those that have come back, and still end the transactions of before. Here it is one of somebody else."""
    monkeypatch.setattr(engine_log, "_FOUND_S", 0.2)
    commands = commands_on(brokers.engine("one"))
    (topic,) = (name for name in brokers.log.topics() if name.endswith("command"))
    stranger = brokers.log.transactional_producer("stranger")
    stranger.begin()
    stranger.append(topic, 0, RowRecords(pa.table({"timestamp": [0], "key": [b"k"], "value": [b"v"]})))
    answer = brokers.pool.submit(commands.append, SECOND)
    with pytest.raises(TimeoutError):
        answer.result(1.5)
    assert not brokers.lost
    stranger.abort()
    offset = answer.result(30)
    assert list(commands.read_all())[-1] == (offset, SECOND)
    assert not brokers.lost


def _use(engine: EngineLog) -> None:
    while True:
        engine.check_lease()


def test_an_engine_that_begins_is_not_driven_out_by_a_busy_one(brokers: Brokers) -> None:
    commands_on(brokers.engine("0"))
    for number in range(1, 6):
        using = brokers.pool.submit(_use, brokers.engine(str(number)))
        follower = brokers.engine("follower")
        with pytest.raises(ProducerFenced):
            using.result(30)
        follower.check_lease()


def test_an_engine_that_ends_waits_for_no_brokers(brokers: Brokers) -> None:
    engine = brokers.engine("one")
    commands = commands_on(engine)
    brokers.relay.lose_question_of(Api.END_TXN)
    answer = brokers.pool.submit(commands.append, SECOND)
    assert brokers.relay.gone.wait(10)
    time.sleep(AWAY_S)
    engine.give_up()
    with pytest.raises((LogClosed, LogUnavailable)):
        answer.result(5)
    with pytest.raises(ProducerFenced):
        engine.check_lease()


def test_a_record_that_is_refused_leaves_the_lease(brokers: Brokers) -> None:
    engine = brokers.engine("one")
    commands = commands_on(engine)
    engine.alter_topic("_millstream-command", {"max.message.bytes": "200"})
    with pytest.raises(Exception, match="large"):
        commands.append(RemoveType(statement="x" * 1000, name="A"))
    commands.append(SECOND)
    assert [command for _, command in commands.read_all()] == [FIRST, SECOND]
    assert not brokers.lost


def test_threads_that_wait_have_their_records_one_after_the_other(brokers: Brokers) -> None:
    commands, before = commands_on(brokers.engine("one")), threading.active_count()
    brokers.relay.lose_answer_of(Api.END_TXN)
    first = brokers.pool.submit(commands.append, SECOND)
    assert brokers.relay.gone.wait(10)
    brokers.relay.come_back()
    second = brokers.pool.submit(commands.append, FIRST)
    eventually(lambda: first.done() and second.done())
    assert [offset for offset, _ in commands.read_all()][1:] == [first.result(), second.result()]
    assert threading.active_count() < before + 20
