"""A server for all tests of a file, and a client."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from rest_proxy import ProxyClient
from running_server import service_in

from millstream.server.service import Service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data"), rest_proxy_consumers_max=20) as started:
        yield started


@pytest.fixture
def proxy(service: Service) -> Iterator[ProxyClient]:
    with ProxyClient(service) as client:
        yield client


@pytest.fixture
def topic(service: Service, request: pytest.FixtureRequest) -> Iterator[str]:
    """One of two partitions, named after the test."""
    name = re.sub(r"[^a-zA-Z0-9]", "-", request.node.name)[:100]
    service.engine.log.create_topic(name, 2)
    yield name
    service.engine.log.delete_topic(name)
