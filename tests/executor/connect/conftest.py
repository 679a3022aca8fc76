"""The formats of a data lake, and the places of files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    """A `Lake`; skipped where its libraries are not installed."""
    pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    from lakes import Lake

    return Lake(request.param, tmp_path)


@pytest.fixture(scope="module")
def store() -> Iterator[object]:
    """An `S3Server`."""
    from s3_server import s3_server

    with s3_server() as started:
        yield started


@pytest.fixture(params=["folder", "s3"])
def folder_or_store(request: pytest.FixtureRequest) -> object:
    """An `S3Server`; None stands for a folder."""
    return None if request.param == "folder" else request.getfixturevalue("store")
