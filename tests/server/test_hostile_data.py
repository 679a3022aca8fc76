"""Records that are poison: none stops a query, none vanishes, and what reads beside them goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from running_server import service_in
from waiting import eventually

from millstream.executor.executor import QueryMetrics
from millstream.logcore.client import RowRecords
from millstream.server.engine.session import Session
from millstream.server.service import Service

GOOD = b'{"A": 1, "D": 1.5, "T": "x"}'
POISON = {
    "no JSON": b"{",
    "no object": b"[1]",
    "another type": b'{"A": "x", "D": 1.5, "T": "y"}',
    "an integer beyond BIGINT": b'{"A": 9223372036854775808, "D": 1, "T": "y"}',
    "digits without end": b'{"A": ' + b"9" * 100_000 + b', "D": 1, "T": "y"}',
    "an exponent that takes minutes": b'{"A": 1, "D": 1e9999999, "T": "y"}',
    "a decimal that does not fit": b'{"A": 1, "D": 123456789.5, "T": "y"}',
    "NaN": b'{"A": 1, "D": NaN, "T": "y"}',
    "Infinity": b'{"A": 1, "D": Infinity, "T": "y"}',
    "brackets a million deep": b'{"A": ' + b"[" * 1_000_000,
    "objects a hundred thousand deep": b'{"A":' * 100_000,
    "UTF-16": '{"A": 1}'.encode("utf-16"),
    "bytes that are no UTF-8": b'{"A": 1, "D": 1, "T": "\xff\xfe"}',
    "half of a surrogate pair": b'{"A": 1, "D": 1, "T": "\\ud83d"}',
    "a NUL": b"\x00",
    "two values": b'{"A": 1} {"A": 2}',
    "a string without end": b'{"T": "x',
}
HARMLESS = {
    "a field twice": b'{"A": 7, "A": 1, "D": 1.5, "T": "x"}',
    "unknown fields": b'{"A": 1, "D": 1.5, "T": "x", "Z": {"deep": [[[]]]}}',
    "space around it": b' \n{"A": 1, "D": 1.5, "T": "x"}\t ',
}


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data"), properties={"auto.offset.reset": "earliest"}) as started:
        ddl = """
            CREATE STREAM s (a BIGINT, d DECIMAL(6, 2), t STRING)
              WITH (kafka_topic='s', value_format='JSON', partitions=1);
            CREATE STREAM used AS SELECT a, d, t FROM s WHERE a > 0;
            CREATE TABLE per_text AS SELECT t, COUNT(*) AS n, SUM(a) AS total FROM s GROUP BY t;"""
        started.engine.execute(ddl, Session())
        yield started


def append(service: Service, values: Sequence[bytes | None], times: Sequence[int] | None = None) -> None:
    table = pa.table(
        {
            "timestamp": pa.array(times or [1] * len(values), pa.int64()),
            "key": pa.nulls(len(values), pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )
    service.engine.log.append("s", 0, RowRecords(table))


def metrics_of(service: Service, query: str, rows_in: int) -> QueryMetrics:
    query_id = next(name for name in service.engine.catalog.queries if query in name)
    eventually(lambda: service.engine.executor.status(query_id).metrics.rows_in >= rows_in, 30)
    status = service.engine.executor.status(query_id)
    assert status.state == "RUNNING", status.error
    metrics = status.metrics
    assert metrics.rows_in == rows_in == metrics.rows_used + metrics.rows_dropped + metrics.rows_failed
    return metrics


def rows(service: Service, sql: str) -> list[tuple[object, ...]]:
    return [row.values for row in service.engine.query(sql, Session())]


def test_poison_is_logged_and_its_neighbours_are_used(service: Service) -> None:
    values = [GOOD]
    for poison in POISON.values():
        values += [poison, GOOD]
    append(service, values)
    metrics = metrics_of(service, "CSAS_USED", len(values))
    assert metrics.rows_failed == len(POISON)
    assert metrics.rows_used == len(POISON) + 1
    assert len(rows(service, "SELECT * FROM used;")) == len(POISON) + 1
    metrics_of(service, "CTAS_PER_TEXT", len(values))
    assert rows(service, "SELECT n FROM per_text WHERE t = 'x';") == [(len(POISON) + 1,)]


def test_what_only_looks_like_poison_is_read(service: Service) -> None:
    append(service, [*HARMLESS.values(), b"", b"null", None])
    metrics = metrics_of(service, "CSAS_USED", len(HARMLESS) + 3)
    assert metrics.rows_used == len(HARMLESS)
    assert rows(service, "SELECT a, t FROM used;") == [(1, "x")] * len(HARMLESS)


@pytest.mark.parametrize("time", [-1, -(2**63), 253_402_300_800_000, 2**62, 2**63 - 1])
def test_times_out_of_all_bounds_stop_nothing(service: Service, time: int) -> None:
    append(service, [GOOD, GOOD, GOOD], [5, time, 6])
    metrics_of(service, "CSAS_USED", 3)
    append(service, [GOOD])
    assert metrics_of(service, "CSAS_USED", 4).rows_used >= 3


def test_a_sum_that_overflows_is_an_error_of_its_row_and_the_query_goes_on(service: Service) -> None:
    largest = b'{"A": 9223372036854775807, "D": 1, "T": "sum"}'
    append(service, [largest, largest, GOOD])
    metrics_of(service, "CTAS_PER_TEXT", 3)
    assert rows(service, "SELECT n FROM per_text WHERE t = 'x';") == [(1,)]


def test_large_keys_and_values_come_through(service: Service) -> None:
    append(service, [b'{"A": 1, "D": 1, "T": "' + b"k" * 5_000_000 + b'"}', GOOD])
    metrics_of(service, "CTAS_PER_TEXT", 2)
    assert sorted(len(str(row[0])) for row in rows(service, "SELECT t FROM per_text;")) == [1, 5_000_000]
