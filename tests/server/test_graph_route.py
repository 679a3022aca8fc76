"""GET /graph, `millstream graph`, and the graph as a notebook gets it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator

import httpx
import pytest
from running_server import service_in
from typer.testing import CliRunner

from millstream import connect
from millstream.cli import app
from millstream.server.service import Service

DDL = """
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data")) as started:
        httpx.post(f"http://{started.http_address}/ksql", json={"ksql": DDL}).raise_for_status()
        yield started


def get(service: Service, **parameters: str) -> httpx.Response:
    return httpx.get(f"http://{service.http_address}/graph", params=parameters)


@pytest.mark.parametrize(
    ("form", "media_type"),
    [("text", "text/plain"), ("dot", "text/vnd.graphviz"), ("svg", "image/svg+xml"), ("json", "application/json")],
)
def test_the_graph_comes_in_the_format_that_is_asked_for(service: Service, form: str, media_type: str) -> None:
    answer = get(service, format=form)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(media_type)
    assert "CTAS_T_1" in answer.text


def test_a_part_of_the_graph_is_asked_for_by_name(service: Service) -> None:
    assert get(service, of="S").text.startswith("STREAM S (topic s")
    plan = get(service, of="CTAS_T_1", format="json").json()
    assert {node["kind"] for node in plan["nodes"]} == {"STEP"}


@pytest.mark.parametrize("parameters", [{"format": "png"}, {"of": "nothing"}, {"of": "it's ${x}"}, {"of": ""}])
def test_what_there_is_not_is_refused(service: Service, parameters: dict[str, str]) -> None:
    answer = get(service, **parameters)
    assert answer.status_code == 400
    assert answer.json()["message"]


def test_the_command_prints_what_the_server_answers(service: Service) -> None:
    url = f"http://{service.http_address}"
    printed = CliRunner().invoke(app, ["graph", "--server", url, "--format", "dot"])
    assert printed.exit_code == 0
    assert "digraph millstream {" in printed.output
    refused = CliRunner().invoke(app, ["graph", "nothing", "--server", url])
    assert refused.exit_code == 1


def test_a_notebook_draws_the_graph() -> None:
    with connect() as ms:
        ms.sql(DDL)
        graph = ms.graph()
        plan = ms.graph("CTAS_T_1")
    ET.fromstring(graph._repr_svg_())
    assert "TABLE T" in str(graph)
    assert graph.dot.startswith("digraph")
    assert next(node["title"] for node in plan.nodes) == "SOURCE"


def test_lineage_and_stalls_are_rows_for_programs() -> None:
    with connect() as ms:
        ms.sql(DDL)
        lineage = ms.sql("SHOW LINEAGE OF t.id;").df()
        stall = ms.sql("EXPLAIN STALL CTAS_T_1;").df()
    assert list(lineage["input"]) == ["S.ID", "S.ID"]
    assert list(lineage["subtype"]) == ["IDENTITY", "GROUP_BY"]
    assert list(stall["code"]) == ["NO_RECORDS"]
