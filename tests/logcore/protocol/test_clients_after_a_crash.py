"""Transactional producers of clients whose server has died, and is back: they go on, in the middle of a transaction,
too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log, open_log

from ..log_records import values_of
from ..transaction_client import TransactionClient

WHERE, SOURCE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def client(folder: Path) -> Iterator[TransactionClient]:
    log = open_log(folder)
    log.create_topic("t", 2)
    log.committed_offsets("g")  # there is a coordinator
    client = TransactionClient(log)
    yield client
    client.log.close()


def values(log: Log, partition: int) -> list[bytes | int | None]:
    """When all that was decided can be seen."""
    end = log.offsets("t", partition).log_end_offset
    assert log.wait({TopicPartition("t", partition): end - 1}, 60)
    return values_of(log, "t", partition)


def nothing(client: TransactionClient) -> None: ...


def committed(client: TransactionClient) -> None:
    client.write(b"a")
    client.end(commit=True)


def aborted(client: TransactionClient) -> None:
    client.write(b"not to be seen")
    client.end(commit=False)


def committed_behind_an_abort(client: TransactionClient) -> None:
    aborted(client)
    committed(client)


@pytest.mark.parametrize("before", [nothing, committed, aborted, committed_behind_an_abort])
def test_who_had_nothing_open_goes_on(
    client: TransactionClient, folder: Path, before: Callable[[TransactionClient], None]
) -> None:
    before(client)
    client.crash(folder)
    client.write(b"b")
    client.write(b"c", partition=1)
    client.end(commit=True)
    assert values(client.log, 0) == ([b"a", b"b"] if "committed" in before.__name__ else [b"b"])
    assert values(client.log, 1) == [b"c"]


def written(client: TransactionClient) -> None:
    client.write(b"half")


def written_behind_an_abort(client: TransactionClient) -> None:
    aborted(client)
    client.write(b"half")


def announced(client: TransactionClient) -> None:
    client.announce(0)


def sent_offsets(client: TransactionClient) -> None:
    client.send_offsets("g", 5)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("before", [written, written_behind_an_abort, announced, sent_offsets])
@pytest.mark.parametrize("crashes", [1, 2])
def test_what_was_open_goes_on_and_ends_as_a_whole(
    client: TransactionClient,
    folder: Path,
    before: Callable[[TransactionClient], None],
    crashes: int,
    commit: bool,
) -> None:
    before(client)
    for _ in range(crashes):
        folder = client.crash(folder)
    assert values_of(client.log, "t") == []
    client.write(b"other half", partition=1)
    client.end(commit=commit)
    client.write(b"next", partition=1)
    client.end(commit=True)
    assert values(client.log, 1) == ([b"other half", b"next"] if commit else [b"next"])
    assert values_of(client.log, "t") == ([b"half"] if commit and "written" in before.__name__ else [])
    assert client.log.committed_offsets("g") == ({SOURCE: 5} if commit and before is sent_offsets else {})


def test_a_commit_whose_answer_was_lost_is_answered_by_the_next_server(client: TransactionClient, folder: Path) -> None:
    committed(client)
    client.crash(folder)
    client.end(commit=True)
    assert values(client.log, 0) == [b"a"]


@pytest.mark.parametrize("commit", [True, False])
def test_so_is_an_end_that_raised_the_epoch(client: TransactionClient, folder: Path, commit: bool) -> None:
    client.write(b"a")
    before = client.end_and_raise(commit=commit)
    client.crash(folder)
    assert client.transactions.end_and_raise(before, commit=commit) == client.who
    client.write(b"b")
    client.end_and_raise(commit=True)
    assert values(client.log, 0) == ([b"a", b"b"] if commit else [b"b"])
