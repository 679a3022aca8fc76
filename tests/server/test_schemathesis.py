"""Schemathesis reads the OpenAPI document and sends what fits it and what does not: every request is answered in time,
by no mistake of the server's, and as the document says.

`test_http_fuzz.py` mixes statements; this is about the envelopes.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pytest
import requests
import schemathesis
from drawn import drawn
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from running_server import service_in
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from millstream.server.service import Service

SECONDS_MAX: Final = 20.0
DDL: Final = """
CREATE STREAM IF NOT EXISTS s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE IF NOT EXISTS t AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;
INSERT INTO s VALUES (0, 0);
"""
STATEMENTS: Final = (
    "SHOW STREAMS;", "DESCRIBE s;", "SELECT * FROM s;", "SELECT * FROM t WHERE id = 1;", "INSERT INTO s VALUES (1, 2);",
    "SELECT * FROM s EMIT CHANGES LIMIT 1;", "PRINT s FROM BEGINNING LIMIT 1;", "DROP STREAM IF EXISTS nope;", "SELEC",
)  # fmt: skip
CHECKS: Final = [
    content_type_conformance, response_headers_conformance, response_schema_conformance, status_code_conformance,
]  # fmt: skip
UNCHECKED: Final = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
ARROW: Final = "application/vnd.apache.arrow.stream"


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    properties = {"ksql.server.command.response.timeout.ms": "10", "auto.offset.reset": "earliest"}
    with service_in(tmp_path_factory.mktemp("data"), properties=properties) as started:
        yield started


def arrow_rows() -> bytes:
    sink = io.BytesIO()
    table = pa.table({"id": [1, 2], "v": [3, 4]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def send_many(service: Service, each: int, every: int = 1) -> int:
    """`each`: requests per operation that fit the document, and as many that do not; `every`: second operation, or so.
    Gives how many were sent."""
    url = f"http://{service.http_address}"
    schemathesis.openapi.format("ksql", st.sampled_from(STATEMENTS) | st.text(max_size=50))
    schemathesis.openapi.format("ksql-name", st.sampled_from(("S", "t", "`s`", "../etc")) | st.text(min_size=1))
    schemathesis.openapi.media_type(ARROW, st.just(arrow_rows()) | st.binary(max_size=200))
    sent = 0
    with requests.Session() as session:
        session.trust_env = False  # of proxies it would look anew before each request
        schema = schemathesis.openapi.from_dict(session.get(f"{url}/openapi.json").json())
        for found in itertools.islice(schema.get_all_operations(), None, None, every):
            assert isinstance(found, Ok)
            operation = found.ok()
            assert session.post(f"{url}/ksql", json={"ksql": DDL}).status_code == 200
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                cases = operation.as_strategy(generation_mode=mode)

                @seed(20261120)
                @settings(max_examples=each, database=None, phases=[Phase.generate], suppress_health_check=UNCHECKED)
                @given(case=cases)
                def answered(case: Case[Any]) -> None:
                    nonlocal sent
                    sent += 1
                    check(case, url, session)

                try:
                    answered()
                except Unsatisfiable:  # nothing about the request could be wrong
                    assert mode == GenerationMode.NEGATIVE
        assert session.get(f"{url}/healthcheck").json()["isHealthy"] is True
    return sent


def check(case: Case[Any], url: str, session: requests.Session) -> None:
    response = case.call(base_url=url, session=session, timeout=SECONDS_MAX)
    case.validate_response(response, checks=CHECKS)
    # Who names a command to wait for may wait in vain: 50301, ksqlDB's code for that, is no mistake of the server's.
    if response.status_code != 503 or response.json().get("error_code") != 50301:
        case.validate_response(response, checks=[not_a_server_error])
    if b"made a mistake" in response.content:
        raise AssertionError(response.content)


@pytest.mark.timeout(400)
def test_every_operation_answers_as_the_document_says(service: Service) -> None:
    sent = send_many(service, drawn(1), every=2)  # the soak test sends 800 times as many, to all
    assert sent > 50, sent


@pytest.mark.soak
def test_twenty_thousand_requests_are_answered_as_the_document_says(service: Service) -> None:
    assert send_many(service, 800) > 20_000
