"""Nodes of a cluster in this process, each with a Kafka listener."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .nodes import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that are up and know each other."""
    with Cluster(tmp_path) as started:
        yield started


@pytest.fixture
def cluster_of_one(tmp_path: Path) -> Iterator[Cluster]:
    """One node, for what happens within a node."""
    with Cluster(tmp_path, 1) as started:
        yield started
