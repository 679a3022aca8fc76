"""The formats of a data lake."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    """A `Lake`; skipped where its libraries are not installed."""
    pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    from lakes import Lake

    return Lake(request.param, tmp_path)
