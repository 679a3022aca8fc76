"""Transactional producers of clients whose server has died, and is back: they go on, but for those whose transaction
was open. That one is aborted as a whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.coordination.transaction_log import NOTES_OPEN
from millstream.logcore.errors import ProducerFenced
from millstream.logcore.log import open_log
from millstream.logcore.protocol.producers import ClientProducer, Producers
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.records.codec import encode
from millstream.logcore.records.key_values import KeyValue

from ..log_records import rows, values_of

WHERE, SOURCE = TopicPartition("t", 0), TopicPartition("src", 0)


class Client:
    """A client of a log that dies and comes back, and what it believes to be."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log = open_log(folder)
        self.log.create_topic("t", 2)
        self.producers = Producers(self.log)
        self._new()
        self.sequence = 0

    def _new(self) -> None:
        producer = self.producers.new("x", 60_000).producer
        self.identity = producer.producer_id, producer.epoch

    @property
    def producer(self) -> ClientProducer:
        return self.producers.find("x", *self.identity)

    def write(self, value: bytes, partition: int = 0) -> None:
        where = TopicPartition("t", partition)
        sequence = self.log.partition(*where).next_sequence(*self.identity)
        self.producer.announce({where})
        batches = encode(rows(value), BatchProducer(*self.identity, sequence, transactional=True))
        self.producer.append(where, batches)

    def commit(self) -> None:
        self.producer.end(commit=True)

    def abort(self) -> None:
        self.producer.end(commit=False)

    def crash(self) -> None:
        """What was written is there, as after kill -9."""
        crashed = self._folder.with_name(self._folder.name + "-crashed")
        shutil.copytree(self._folder, crashed)
        self.log.close()
        self._folder = crashed
        self.log = open_log(crashed)
        self.producers = Producers(self.log)


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    client = Client(folder)
    yield client
    client.log.close()


def nothing(client: Client) -> None: ...


def committed(client: Client) -> None:
    client.write(b"a")
    client.commit()


def aborted(client: Client) -> None:
    client.write(b"not to be seen")
    client.abort()


def committed_behind_an_abort(client: Client) -> None:
    aborted(client)
    committed(client)


@pytest.mark.parametrize("before", [nothing, committed, aborted, committed_behind_an_abort])
def test_who_had_nothing_open_goes_on(client: Client, before: Callable[[Client], None]) -> None:
    before(client)
    client.crash()
    client.write(b"b")
    client.write(b"c", partition=1)
    client.commit()
    assert values_of(client.log, "t") == ([b"a", b"b"] if "committed" in before.__name__ else [b"b"])
    assert values_of(client.log, "t", 1) == [b"c"]


def written(client: Client) -> None:
    client.write(b"half")


def written_behind_an_abort(client: Client) -> None:
    aborted(client)
    client.write(b"half")


def announced(client: Client) -> None:
    client.producer.announce({WHERE})


def sent_offsets(client: Client) -> None:
    client.producer.announce(set())
    client.producer.send_offsets("g", {SOURCE: 5}, {})


@pytest.mark.parametrize("before", [written, written_behind_an_abort, announced, sent_offsets])
@pytest.mark.parametrize("crashes", [1, 2])
def test_what_was_open_is_aborted_as_a_whole(client: Client, before: Callable[[Client], None], crashes: int) -> None:
    before(client)
    for _ in range(crashes):
        client.crash()
    with pytest.raises(ProducerFenced):
        client.write(b"other half", partition=1)
    with pytest.raises(ProducerFenced):
        client.commit()
    new = client.producers.new("x", 60_000).producer
    client.identity = new.producer_id, new.epoch
    client.write(b"b")
    client.commit()
    assert (values_of(client.log, "t"), values_of(client.log, "t", 1)) == ([b"b"], [])
    assert client.log.committed_offsets("g") == {}


def test_a_commit_whose_answer_was_lost_is_answered_by_the_next_server(client: Client) -> None:
    committed(client)
    client.crash()
    client.commit()
    assert values_of(client.log, "t") == [b"a"]


@pytest.mark.parametrize("commit", [True, False])
def test_so_is_an_end_that_raised_the_epoch(client: Client, commit: bool) -> None:
    client.write(b"a")
    before = client.identity
    raised = client.producers.end_and_raise("x", *before, commit=commit)
    client.crash()
    assert client.producers.end_and_raise("x", *before, commit=commit) == raised
    client.identity = raised
    client.write(b"b")
    client.producers.end_and_raise("x", *raised, commit=True)
    assert values_of(client.log, "t") == ([b"a", b"b"] if commit else [b"b"])


def test_who_began_under_a_version_that_took_no_notes_is_fenced(client: Client) -> None:
    committed(client)
    client.log._coordinator._log.append([KeyValue(NOTES_OPEN.key, None)])  # as that version has left it
    client.crash()
    with pytest.raises(ProducerFenced):
        client.write(b"b")
