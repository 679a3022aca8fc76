"""Homes of buckets: a bucket stays in the worker that had it first; if that worker is gone, another one takes over."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spark_stages import OnDuckDB, StagedRun, contents, plan_of, produce
from waiting import eventually

from millstream.executor.queries.query_log import take_id
from millstream.executor.spark import bucket
from millstream.executor.spark.bucket import Report
from millstream.executor.spark.homes import home_connection
from millstream.executor.spark.homes.bucket_home import BucketHome, Homes, ShareFailed, address_towards
from millstream.executor.spark.homes.home_connection import HomeConnection, HomeLost
from millstream.executor.spark.homes.known_homes import KnownHomes
from millstream.executor.spark.homes.open_buckets import BucketShare, OpenBuckets
from millstream.executor.spark.lanes import Positions
from millstream.executor.spark.markers import BatchId, SentRange
from millstream.executor.spark.pieces import decode_piece, encode_piece
from millstream.executor.spark.spark_jobs import with_homes
from millstream.executor.spark.spark_trouble import trouble_of
from millstream.executor.spark.spec import RunSpec
from millstream.executor.spark.stages import Subplan
from millstream.logcore.client import LogClient, TransactionalProducer
from millstream.logcore.log import Log
from millstream.logcore.remote import trusted_address
from millstream.logcore.server import LogServer
from millstream.planner.physical import PhysicalPlan
from millstream.planner.serde import plan_to_json

LOCALHOST = "127.0.0.1"
SECRET = b"of the application"
QUERY = "group by another column"
SEVERAL_SUBPLANS = "average of maxima"


@pytest.fixture
def bootstrap(log: Log) -> Iterator[str]:
    """Where the log of the test is reached."""
    server = LogServer(log, port=0)
    server.start()
    yield trusted_address(server.log, server.address)
    server.stop()


@pytest.fixture
def worker() -> Iterator[Callable[[], Homes]]:
    """Makes what a worker has."""
    made: list[Homes] = []

    def make() -> Homes:
        made.append(Homes())
        return made[-1]

    yield make
    for each in made:
        each.close()


class RunOfWorkers(StagedRun):
    """A run whose shares go to one worker after the other, as Spark gives tasks to idle workers. State: `homes` is what
    the driver knows."""

    def __init__(
        self, plan: PhysicalPlan, log: LogClient, bootstrap: str, workers: list[Homes], name: str = "run"
    ) -> None:
        super().__init__(plan, log, name, records_max=30)
        self.spec = RunSpec(plan_to_json(plan), bootstrap, name, home_secret=SECRET.decode(), driver_host=LOCALHOST)
        self.workers = cycle(workers)
        self.homes: dict[int, str] = {}
        self.parallelism = 1

    def apply(self, batch: BatchId, start: Positions, end: Positions, only: set[int] | None = None) -> list[Report]:
        reports: list[Report] = []
        sent: dict[int, SentRange] = {}
        for subplan in self.stages.subplans:
            for share in self.shares(subplan, batch, start, end, sent):
                report = next(self.workers).apply(share, self.known(subplan))
                sent[report.bucket] = SentRange(report.sent_start, report.sent_end)
                self.homes[report.bucket] = report.home
                reports.append(report)
        return reports

    def known(self, subplan: Subplan) -> KnownHomes:
        return KnownHomes.of(subplan.buckets, self.homes, self.parallelism)

    def next_shares(self, batch: BatchId) -> list[BucketShare]:
        """Those of the first subplan, up to the end of the input."""
        start, self.at = self.at, self.ends.next(self.at, self.ends.available(self.at))
        return self.shares(self.stages.subplans[0], batch, start, self.at, {})

    def shares(
        self, subplan: Subplan, batch: BatchId, start: Positions, end: Positions, sent: Mapping[int, SentRange]
    ) -> list[BucketShare]:
        return [
            BucketShare(self.spec.to_json(), batch, bucket, [pa.py_buffer(encode_piece(piece)) for piece in pieces])
            for bucket, pieces in self.pieces(subplan, start, end, sent).items()
        ]


@pytest.fixture
def acquired(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a worker has acquired each bucket, by the bucket's id."""
    found: Counter[str] = Counter()

    def counted(client: LogClient, plan: PhysicalPlan, id: str) -> TransactionalProducer:
        found[id] += 1
        return take_id(client, plan, id)

    monkeypatch.setattr(bucket, "take_id", counted)
    return found


@pytest.mark.parametrize("query", [QUERY, SEVERAL_SUBPLANS, "join with a table"])
def test_a_bucket_is_opened_once_whichever_worker_gets_its_tasks(
    query: str, log: Log, bootstrap: str, worker: Callable[[], Homes], acquired: Counter[str]
) -> None:
    duck = OnDuckDB(plan_of(query, "DUCK"), log)
    run = RunOfWorkers(plan_of(query, "SPARK"), log, bootstrap, [worker(), worker()])
    homes: list[dict[int, str]] = []
    for begin in range(0, 300, 60):
        produce(log, begin, begin + 60)
        run.drain()
        duck.drain()
        homes.append(dict(run.homes))
    assert contents(log, "SPARK") == contents(log, "DUCK") != {}
    assert all(later == homes[0] for later in homes)
    assert len(set(homes[0].values())) == 2
    assert set(acquired.values()) == {1}


def test_a_bucket_without_state_has_no_home(log: Log, bootstrap: str, worker: Callable[[], Homes]) -> None:
    produce(log, 0, 60)
    run = RunOfWorkers(plan_of("stateless", "SPARK"), log, bootstrap, [worker()])
    assert run.drain()
    assert set(run.homes.values()) == {""}


class DyingBuckets(OpenBuckets):
    """Those of a worker that ends with a share: before it is applied, or before anybody hears of it."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self._when = when

    def apply(self, share: BucketShare) -> Report:
        if self._when == "after":
            super().apply(share)
        raise SystemExit


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("query", [QUERY, SEVERAL_SUBPLANS])
def test_a_home_that_dies_with_a_share_is_replaced_by_the_worker_that_sent_it(
    when: str, query: str, log: Log, bootstrap: str, worker: Callable[[], Homes]
) -> None:
    other, dying = worker(), BucketHome(DyingBuckets(when), LOCALHOST, SECRET)
    run = RunOfWorkers(plan_of(query, "SPARK"), log, bootstrap, [other])
    run.homes = dict.fromkeys(range(run.stages.bucket_count), dying.address)
    produce(log, 0, 200)
    reports = run.drain()
    assert {run.homes[report.bucket] for report in reports}.isdisjoint({dying.address})
    duck = OnDuckDB(plan_of(query, "DUCK"), log)
    duck.drain()
    assert contents(log, "SPARK") == contents(log, "DUCK") != {}
    dying.close()


def test_a_home_that_has_ended_is_replaced(log: Log, bootstrap: str, worker: Callable[[], Homes]) -> None:
    gone = BucketHome(OpenBuckets(), LOCALHOST, SECRET)
    gone.close()
    with pytest.raises(HomeLost, match="refused"):
        HomeConnection.to(gone.address, SECRET)
    run = RunOfWorkers(plan_of(QUERY, "SPARK"), log, bootstrap, [worker()])
    run.homes = dict.fromkeys(range(run.stages.bucket_count), gone.address)
    produce(log, 0, 60)
    run.drain()
    (home,) = set(run.homes.values())
    assert home not in ("", gone.address)


def test_the_next_run_finds_the_homes_of_the_last_one(
    log: Log, bootstrap: str, worker: Callable[[], Homes], acquired: Counter[str]
) -> None:
    workers, plan = [worker(), worker()], plan_of(QUERY, "SPARK")
    homes: dict[int, str] = {}
    for number in range(3):
        produce(log, number * 60, number * 60 + 60)
        run = RunOfWorkers(plan, log, bootstrap, workers, f"run-{number}")
        run.homes.update(homes)
        run.drain()
        assert set(acquired.values()) == {number + 1}
        homes = homes or dict(run.homes)
        assert run.homes == homes
    duck = OnDuckDB(plan_of(QUERY, "DUCK"), log)
    duck.drain()
    assert contents(log, "SPARK") == contents(log, "DUCK") != {}


def homes_of_subplans(run: RunOfWorkers) -> list[list[str]]:
    """The homes of those buckets that have one, for each subplan with state."""
    subplans = [subplan for subplan in run.stages.subplans if subplan.stateful]
    return [[run.homes[bucket] for bucket in subplan.buckets if run.homes.get(bucket)] for subplan in subplans]


@pytest.mark.parametrize("query", [QUERY, SEVERAL_SUBPLANS])
def test_workers_that_come_later_get_buckets(
    query: str, log: Log, bootstrap: str, worker: Callable[[], Homes], acquired: Counter[str], tmp_path: Path
) -> None:
    """Each bucket moves at most once, and the file with its state moves with it."""
    duck = OnDuckDB(plan_of(query, "DUCK"), log)
    first = worker()
    run = RunOfWorkers(plan_of(query, "SPARK"), log, bootstrap, [first])
    run.spec = replace(run.spec, cache=str(tmp_path / "caches"))
    produce(log, 0, 60)
    run.drain()
    assert len(set(run.homes.values())) == 1
    run.workers, run.parallelism = cycle([first, worker(), worker()]), 3
    for begin in range(60, 1260, 60):
        produce(log, begin, begin + 60)
        run.drain()
        if all(len(set(homes)) == len(homes) for homes in homes_of_subplans(run)):
            break
    duck.drain()
    assert contents(log, "SPARK") == contents(log, "DUCK") != {}
    assert all(len(set(homes)) == len(homes) > 0 for homes in homes_of_subplans(run))
    assert max(acquired.values()) == 2
    assert len(list((tmp_path / "caches").rglob("state-*.duckdb"))) == sum(map(bool, run.homes.values()))


def test_a_bucket_leaves_a_worker_that_is_gone(log: Log, bootstrap: str, worker: Callable[[], Homes]) -> None:
    first, other = Homes(), worker()
    run = RunOfWorkers(plan_of(QUERY, "SPARK"), log, bootstrap, [first])
    produce(log, 0, 60)
    run.drain()
    first.close()
    run.workers, run.parallelism = cycle([other]), 3
    produce(log, 60, 120)
    run.drain()
    duck = OnDuckDB(plan_of(QUERY, "DUCK"), log)
    duck.drain()
    assert contents(log, "SPARK") == contents(log, "DUCK") != {}
    assert len(set(run.homes.values())) == 1


@pytest.mark.parametrize(
    ("homes", "most", "batch", "worker", "moving"),
    [
        ("aaa", 3, 1, "b", ""),  # no worker has too many
        ("aaa", 2, 1, "b", "0"),
        ("aaa", 2, 5, "b", "2"),  # one per batch
        ("aaa", 2, 7, "b", "1"),
        ("aaa", 2, 1, "a", ""),  # they are there already
        ("aaabb", 2, 1, "b", ""),  # this worker has enough
        ("aaab", 2, 1, "b", "0"),
        ("aabb", 1, 1, "c", "02"),  # one from each worker
        ("aabb", 1, 5, "c", "13"),
        ("ab", 1, 1, "c", ""),
    ],
)
def test_where_a_bucket_moves(homes: str, most: int, batch: int, worker: str, moving: str) -> None:
    known = KnownHomes(dict(enumerate(homes)), most)
    found = [bucket for bucket, home in enumerate(homes) if known.home_of(bucket, batch, worker) != home]
    assert found == [int(bucket) for bucket in moving]
    assert known.home_of(len(homes), batch, worker) == worker  # a bucket without a home


@pytest.mark.parametrize(
    ("buckets", "workers", "most"), [(6, 6, 1), (6, 5, 2), (6, 3, 2), (6, 1, 6), (6, 9, 1), (6, 0, 6)]
)
def test_how_many_buckets_a_worker_has_at_most(buckets: int, workers: int, most: int) -> None:
    assert KnownHomes.of(range(2, 2 + buckets), {1: "a", 2: "b", 8: "c"}, workers) == KnownHomes({2: "b"}, most)


def test_an_error_in_the_home_is_told_as_one_of_the_task(log: Log, bootstrap: str, worker: Callable[[], Homes]) -> None:
    first, other = worker(), worker()
    run = RunOfWorkers(plan_of(QUERY, "SPARK"), log, bootstrap, [first])
    produce(log, 0, 60)
    run.drain()
    RunOfWorkers(plan_of(QUERY, "SPARK"), log, bootstrap, [first], "a later run")
    produce(log, 60, 90)
    (share, *_) = run.next_shares(BatchId(99, "late"))
    with pytest.raises(ShareFailed, match="StaleRun") as failed:
        other.apply(share, KnownHomes(run.homes, 3))
    assert trouble_of(RuntimeError(f"Traceback\n{ShareFailed.__name__}: {failed.value}"), "SPARK_1").kind == "over"
    again = replace(share, batch=BatchId(98, "late"))
    with pytest.raises(ShareFailed, match="StaleRun"):  # over the same connection
        other.apply(again, KnownHomes(run.homes, 3))


@pytest.mark.parametrize(("limit", "times"), [(3, 1), (2, 2)])
def test_only_so_many_buckets_stay_open(
    limit: int, times: int, log: Log, bootstrap: str, acquired: Counter[str]
) -> None:
    """Of three buckets, taken in turn, none is found open again if only two may stay."""
    run = RunOfWorkers(plan_of(QUERY, "SPARK"), log, bootstrap, [])
    with contextlib.closing(OpenBuckets(limit)) as buckets:
        for number in (1, 2):
            produce(log, number * 30, number * 30 + 30)
            for share in run.next_shares(BatchId(number, "batch")):
                buckets.apply(share)
    assert len(acquired) == 3
    assert set(acquired.values()) == {times}


def test_a_bucket_that_is_in_use_is_not_closed_for_another_one(
    log: Log, bootstrap: str, acquired: Counter[str]
) -> None:
    """Only one may stay open. Another bucket is used and closed while this one is held."""
    run = RunOfWorkers(plan_of(QUERY, "SPARK"), log, bootstrap, [])
    with contextlib.closing(OpenBuckets(1)) as buckets:
        for number in (1, 2):
            produce(log, number * 30, number * 30 + 30)
            held, other, *_ = run.next_shares(BatchId(number, "batch"))
            with buckets._used("SPARK_1", held.bucket) as opened:
                opened.of_run(held.spec, held.bucket).apply([decode_piece(each) for each in held.pieces], held.batch)
                buckets.apply(other)
    assert acquired == {f"SPARK_1-{held.bucket}": 1, f"SPARK_1-{other.bucket}": 2}


def test_shares_of_different_buckets_are_applied_at_the_same_time(log: Log, bootstrap: str) -> None:
    run = RunOfWorkers(plan_of(QUERY, "SPARK"), log, bootstrap, [])
    produce(log, 0, 30)
    shares = run.next_shares(BatchId(1, "batch"))
    both = threading.Barrier(2)

    class Meeting(OpenBuckets):
        @contextlib.contextmanager
        def _used(self, query_id: str, bucket: int) -> Generator[Any]:
            with super()._used(query_id, bucket) as opened:
                both.wait(20)  # each holds its bucket while it waits for the other one
                yield opened

    buckets, reports = Meeting(), list[Report]()
    threads = [
        threading.Thread(target=lambda share=share: reports.append(buckets.apply(share))) for share in shares[:2]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    buckets.close()
    assert {report.bucket for report in reports} == {share.bucket for share in shares[:2]}


@pytest.mark.parametrize(("query", "has_file"), [(QUERY, True), ("stateless", False)])
def test_state_lies_in_a_file_of_the_bucket(
    query: str, has_file: bool, log: Log, bootstrap: str, worker: Callable[[], Homes], tmp_path: Path
) -> None:
    produce(log, 0, 60)
    run = RunOfWorkers(plan_of(query, "SPARK"), log, bootstrap, [worker()])
    run.spec = replace(run.spec, cache=str(tmp_path / "caches"))
    assert len(run.drain()) >= 3
    found = {file.parent.name for file in (tmp_path / "caches").rglob("state-*.duckdb")}
    assert found == ({"bucket-0", "bucket-1", "bucket-2"} if has_file else set())


def test_what_a_worker_has_open_is_closed_with_it(log: Log, bootstrap: str, tmp_path: Path) -> None:
    """Its threads end, and the files of its buckets serve the next one."""
    before, files = set(threading.enumerate()), list[set[Path]]()
    run = RunOfWorkers(plan_of(QUERY, "SPARK"), log, bootstrap, [])
    run.spec = replace(run.spec, cache=str(tmp_path / "caches"))
    for begin in (0, 60):
        produce(log, begin, begin + 60)
        run.homes.clear()
        with contextlib.closing(Homes()) as one, contextlib.closing(Homes()) as other:
            run.workers = cycle([one, other])
            assert len(run.drain()) >= 3
        files.append(set((tmp_path / "caches").rglob("state-*.duckdb")))
        eventually(lambda: not [each for each in set(threading.enumerate()) - before if "home" in each.name])
    assert len(files[0]) == 3
    assert files[1] == files[0]


def test_a_host_behind_a_firewall_costs_one_wait(
    log: Log, bootstrap: str, worker: Callable[[], Homes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux drops what does not fit into the queue of a listening socket, as a firewall does."""
    monkeypatch.setattr(home_connection, "CONNECT_S", 0.2)
    tries: list[str] = []
    connect = HomeConnection.to
    monkeypatch.setattr(
        HomeConnection, "to", lambda address, secret: [tries.append(address), connect(address, secret)][1]
    )
    run = RunOfWorkers(plan_of(QUERY, "SPARK"), log, bootstrap, [worker()])
    with contextlib.ExitStack() as opened:
        silent = opened.enter_context(socket.create_server((LOCALHOST, 0), backlog=0))
        with contextlib.suppress(TimeoutError):
            while True:
                opened.enter_context(socket.create_connection((LOCALHOST, silent.getsockname()[1]), 0.2))
        for number in range(2):
            run.homes = dict.fromkeys(range(3), address_of(silent))
            produce(log, number * 60, number * 60 + 60)
            assert len(run.drain()) >= 3
    assert len(tries) == 1
    run.homes = dict.fromkeys(range(3), "127.0.0.2:9")
    produce(log, 120, 180)
    assert len(run.drain()) >= 3
    assert tries[1] == "127.0.0.2:9"  # another host is tried


# -------------------------------------------------------------- connections


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server((LOCALHOST, 0)) as found:
        yield found


def address_of(listening: socket.socket) -> str:
    return f"{LOCALHOST}:{listening.getsockname()[1]}"


def accepted(listening: socket.socket, address: str, secret: bytes = SECRET) -> Future[HomeConnection]:
    """What comes of the next connection."""
    found: Future[HomeConnection] = Future()

    def accept() -> None:
        try:
            found.set_result(HomeConnection.accepted(listening.accept()[0], address, secret))
        except HomeLost as error:
            found.set_exception(error)

    threading.Thread(target=accept, daemon=True).start()
    return found


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_messages_of_any_length_arrive_whole(size: int, listening: socket.socket) -> None:
    home = accepted(listening, address_of(listening))
    client = HomeConnection.to(address_of(listening), SECRET)
    message = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    threading.Thread(target=lambda: [client.send(message), client.send(b"the next")], daemon=True).start()
    served = home.result(20)
    assert served.receive().to_pybytes() == message
    assert served.receive().to_pybytes() == b"the next"
    client.close()
    with pytest.raises(HomeLost):
        served.receive()
    served.close()


def test_who_does_not_know_the_secret_is_refused_on_both_sides(listening: socket.socket) -> None:
    home = accepted(listening, address_of(listening), b"another")
    with pytest.raises(HomeLost):
        HomeConnection.to(address_of(listening), SECRET)
    with pytest.raises(HomeLost, match="does not know the secret"):
        home.result(20)


def test_a_proof_that_was_made_for_another_address_is_refused(listening: socket.socket) -> None:
    """As of a program that has taken the port of a worker that ended, and passes on what it is sent."""
    home = accepted(listening, f"{LOCALHOST}:1")
    with pytest.raises(HomeLost):
        HomeConnection.to(address_of(listening), SECRET)
    with pytest.raises(HomeLost, match="does not know the secret"):
        home.result(20)


def test_a_client_believes_no_home_that_cannot_prove_it(listening: socket.socket) -> None:
    def pretend() -> None:
        connected = listening.accept()[0]
        connected.sendall(bytes(32))
        connected.recv(64)
        connected.sendall(bytes(32))

    threading.Thread(target=pretend, daemon=True).start()
    with pytest.raises(HomeLost, match="does not know the secret"):
        HomeConnection.to(address_of(listening), SECRET)


def test_a_home_that_says_nothing_is_given_up(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_connection, "CONNECT_S", 0.1)
    with pytest.raises(HomeLost, match="timed out"):
        HomeConnection.to(address_of(listening), SECRET)


def test_a_home_and_its_clients_wait_for_each_other_as_long_as_both_hosts_are_there(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_connection, "CONNECT_S", 0.1)
    home = accepted(listening, address_of(listening))
    client = HomeConnection.to(address_of(listening), SECRET)
    served = home.result(20)
    for sends, receives in ((client, served), (served, client)):
        threading.Timer(0.3, sends.send, [b"late"]).start()
        assert receives.receive().to_pybytes() == b"late"
        connected = receives._socket
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5  # seconds of silence
    client.close()
    served.close()


def test_a_client_that_says_nothing_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    home = BucketHome(OpenBuckets(), LOCALHOST, SECRET)
    host, _, port = home.address.rpartition(":")
    with socket.create_connection((host, int(port))):
        HomeConnection.to(home.address, SECRET).close()
    home.close()


# -------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "has_homes"),
    [
        ({"spark.driver.host": "10.0.0.5"}, True),
        ({"spark.driver.host": "10.0.0.5", "spark.network.crypto.enabled": "false"}, True),
        ({"spark.driver.host": "10.0.0.5", "spark.network.crypto.enabled": "true"}, False),
        ({"spark.driver.host": "10.0.0.5", "spark.ssl.rpc.enabled": "TRUE"}, False),
    ],
)
def test_an_application_that_encrypts_has_no_homes(settings: dict[str, str], has_homes: bool) -> None:
    spec = with_homes(RunSpec("{}", "nowhere", "run"), settings)
    assert bool(spec.home_secret) is has_homes
    assert spec.driver_host == ("10.0.0.5" if has_homes else "")
    assert with_homes(spec, settings).home_secret == spec.home_secret


def test_the_secret_is_not_in_what_a_run_is_shown_as() -> None:
    spec = with_homes(RunSpec("{}", "nowhere", "run"), {})
    assert spec.home_secret
    assert spec.home_secret not in repr(spec)


def test_a_host_finds_its_own_address() -> None:
    assert address_towards(LOCALHOST) == LOCALHOST
