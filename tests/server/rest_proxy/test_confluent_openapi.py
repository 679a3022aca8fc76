"""The v3 API against the OpenAPI document of Confluent's REST proxy: what each operation answers has the status, the
type and the shape that the document says.

The document (api/v3/openapi.yaml of confluentinc/kafka-rest) is not ours to distribute: `MILLSTREAM_CONFLUENT_OPENAPI`
names a copy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import schemathesis
import yaml
from drawn import drawn
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from rest_proxy import V2, ProxyClient, cluster_path
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from waiting import eventually

from millstream.server.service import Service

DOCUMENT: Final = os.environ.get("MILLSTREAM_CONFLUENT_OPENAPI")
SECONDS_MAX: Final = 60.0
CHECKS: Final = [
    content_type_conformance, response_schema_conformance, status_code_conformance, not_a_server_error,
]  # fmt: skip
UNCHECKED: Final = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
UNDOCUMENTED: Final = {
    404: "what is not there: Confluent's server gives 404 for each of them, and the document tells it for some",
    422: "a body whose members are missing, unknown or of another type, as with Confluent's server",
}
"""Statuses that the document leaves out, and why we answer with them nevertheless."""
REFUSED: Final = {
    "/acls": "without users in the configuration",
    "/broker-configs": "settings of brokers are in the configuration; none is that of all brokers",
    "/brokers/{broker_id}/configs": "as above",
    "/reassignment": "POST /cluster/reassign, and GET /cluster, know reassignments",
}
"""What the document describes and we refuse on purpose: a part of a path, and why. docs/rest-proxy.md says so."""


def document() -> dict[str, Any]:
    """It says `type: int64` in one place, which is no type."""
    text = Path(DOCUMENT or "").read_text(encoding="utf-8")
    return yaml.safe_load(re.sub(r"type: int64\b", "type: integer", text))


class Filled:
    """A server with what the paths of the document name. State: a consumer instance, whose group has read a topic."""

    def __init__(self, service: Service, proxy: ProxyClient) -> None:
        self._log, self._proxy = service.engine.log, proxy
        self.base = f"http://{service.http_address}/v3"
        self._cluster = cluster_path(proxy)
        self.refill()
        proxy.post("/consumers/g", {"name": "i", "format": "json", "auto.offset.reset": "earliest"})
        proxy.post("/consumers/g/instances/i/subscription", {"topics": ["t"]})
        accept = "application/vnd.kafka.json.v2+json"
        eventually(lambda: proxy.get("/consumers/g/instances/i/records", accept).json())
        proxy.post("/consumers/g/instances/i/offsets")
        (consumer,) = proxy.get(f"{self._cluster}/consumer-groups/g/consumers").json()["data"]
        (broker,) = proxy.get(f"{self._cluster}/brokers").json()["data"]
        settings = proxy.get(f"{self._cluster}/brokers/{broker['broker_id']}/configs").json()["data"]
        self._names = {
            "cluster_id": self._cluster.rpartition("/")[2], "topic_name": "t", "partition_id": 0,
            "consumer_group_id": "g", "consumer_id": consumer["consumer_id"], "broker_id": broker["broker_id"],
        }  # fmt: skip
        self._of_brokers, self._of_topics = settings[0]["name"], "cleanup.policy"

    def refill(self) -> None:
        if self._log.topic("t") is None:
            self._log.create_topic("t", 2)
        self._proxy.produce("/topics/t", {"records": [{"value": 1}]})

    def names(self, path: str) -> dict[str, Any]:
        """The values of the path's parameters, of things that exist."""
        name = self._of_topics if "/topics/" in path else self._of_brokers
        found = {**self._names, "name": name}
        return {parameter: found[parameter] for parameter in re.findall(r"{(\w+)}", path)}


@pytest.fixture
def filled(service: Service, proxy: ProxyClient) -> Iterator[Filled]:
    yield Filled(service, proxy)
    proxy.http.request("DELETE", "/consumers/g/instances/i", headers={"content-type": V2})


def check(case: Case[Any], response: Any, mode: str) -> None:
    unforeseen = response.status_code in UNDOCUMENTED
    if unforeseen and (response.status_code == 422 or mode != "existing" or any(part in case.path for part in REFUSED)):
        assert response.json().keys() == {"error_code", "message"}
        return
    case.validate_response(response, checks=CHECKS)


class Requests:
    """State: how many were answered as the document says, the first failure of each operation that was not, and the
    statuses of each operation whose path named what exists."""

    def __init__(self, filled: Filled, session: requests.Session) -> None:
        self._filled, self._session = filled, session
        self.sent = 0
        self.failures: dict[str, str] = {}
        self.statuses: dict[str, set[int]] = {}

    def send(self, operation: Any, mode: str, count: int) -> None:
        made = GenerationMode.NEGATIVE if mode == "malformed" else GenerationMode.POSITIVE

        @seed(20261130)
        @settings(
            max_examples=count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=UNCHECKED
        )
        @given(case=operation.as_strategy(generation_mode=made))
        def answered(case: Case[Any]) -> None:
            if mode == "existing":
                case.path_parameters = self._filled.names(case.path)
            response = case.call(base_url=self._filled.base, session=self._session, timeout=SECONDS_MAX)
            if mode == "existing":
                self.statuses.setdefault(operation.label, set()).add(response.status_code)
            check(case, response, mode)
            self.sent += 1

        self._filled.refill()
        try:
            answered()
        except Unsatisfiable:  # nothing about the request could be wrong
            assert mode == "malformed"
        except BaseExceptionGroup as error:
            self.failures[f"{operation.label} ({mode})"] = "\n".join(str(each) for each in error.exceptions)
        except AssertionError as error:
            self.failures[f"{operation.label} ({mode})"] = str(error)


def send_many(filled: Filled, count: int) -> Requests:
    """`count`: requests per operation of each kind: with what exists, without, and malformed ones."""
    with requests.Session() as session:
        session.trust_env = False
        sender = Requests(filled, session)
        for found in schemathesis.openapi.from_dict(document()).get_all_operations():
            assert isinstance(found, Ok)
            for mode in ("existing", "missing", "malformed"):
                sender.send(found.ok(), mode, count)
    return sender


@pytest.mark.skipif(DOCUMENT is None, reason="MILLSTREAM_CONFLUENT_OPENAPI names no copy of Confluent's document")
@pytest.mark.timeout(1200)
def test_every_operation_answers_as_confluents_document_says(filled: Filled) -> None:
    sender = send_many(filled, drawn(5))
    assert not sender.failures, "\n\n".join(f"{label}\n{what}" for label, what in sender.failures.items())
    assert sender.sent > 500, sender.sent
    reads = {label: found for label, found in sender.statuses.items() if label.startswith("GET ")}
    refused = {label for label, found in reads.items() if not any(status < 300 for status in found)}
    assert all(any(part in label for part in REFUSED) for label in refused), refused
    assert len(refused) == 5, (
        refused
    )  # a read of the access rules, of one setting of all brokers, three of reassignments
