"""Quix Streams counts words exactly once, while the server and the applications end again and again."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bench.maven import cache_folder
from tests.server.clients.test_foreign_clients import installed

from .exactly_once import (
    Disturbance,
    Lines,
    any_of_them,
    kill_an_application,
    kill_the_server,
    running,
    serving,
    stop_the_server,
)
from .serving import Product, count_of

_PACKAGE: Final = "quixstreams==3.28.1"
_PROGRAM: Final = Path(__file__).parent / "python" / "quix_counts.py"


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that has Quix Streams. Skips where it cannot be had."""
    folder = cache_folder("pypi") / _PACKAGE
    if not (folder / "installed").is_file():
        installed([sys.executable, "-m", "venv", "--clear", str(folder)], "venv")
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        installed([*pip, "--retries", "1", _PACKAGE], _PACKAGE)
        (folder / "installed").touch()
    return str(folder / "bin" / "python")


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    with serving(tmp_path, "lines", "counts") as product:
        yield product


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("disturb", "instances"),
    [(stop_the_server, 1), (kill_the_server, 1), (kill_an_application, 2), (any_of_them, 2)],
    ids=["server stopped", "server killed", "application killed", "any"],
)
def test_words_are_counted_exactly_once_whoever_ends(
    tmp_path: Path, product: Product, python: str, disturb: Disturbance, instances: int
) -> None:
    seed = count_of("QUIX_SEED", 0)
    lines = Lines(product.address, seed)
    folders = [tmp_path / f"state{number}" for number in range(instances)]
    with running([python, str(_PROGRAM), product.address], folders) as applications:
        lines.send_under(disturb, product, applications, random.Random(seed), ends=count_of("QUIX_ENDS", 6))
        found = [json.loads(value) for value in lines.eventually(product.address, "counts")]
    assert sorted((each["number"], each["word"]) for each in found) == sorted(lines.words.items())
    lines.check_counts((each["word"], each["total"]) for each in found)
