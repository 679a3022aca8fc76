"""Flink SQL copies and counts lines exactly once, while it and the server end again and again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from bench.maven import Unavailable, jars
from bench.nexmark.flink import flink_python

from .exactly_once import (
    Application,
    Disturbance,
    Lines,
    any_of_them,
    kill_an_application,
    kill_the_server,
    serving,
    stop_the_server,
)
from .serving import Product, count_of

_CONNECTOR: Final = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
_PROGRAM: Final = Path(__file__).parent / "python" / "flink_counts.py"


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    with serving(tmp_path, "lines", "copies", "counts") as product:
        yield product


@pytest.fixture
def job(product: Product, tmp_path: Path) -> Iterator[Callable[[str], Application]]:
    """Starts the job, with this way to name transactions."""
    try:
        python, (connector,) = flink_python(), jars(_CONNECTOR, alone=True)
    except Unavailable as error:
        pytest.skip(str(error))
    checkpoints = tmp_path / "flink"
    checkpoints.mkdir()
    with ExitStack() as started:

        def start(naming: str) -> Application:
            command = [str(python), str(_PROGRAM), product.address, str(checkpoints), str(connector), naming]
            return started.enter_context(Application(command, checkpoints))

        yield start


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
@pytest.mark.parametrize(
    "disturb",
    [stop_the_server, kill_the_server, kill_an_application, any_of_them],
    ids=["server stopped", "server killed", "Flink killed", "any"],
)
def test_lines_are_copied_and_counted_exactly_once_whoever_ends(
    product: Product, job: Callable[[str], Application], disturb: Disturbance, naming: str
) -> None:
    seed = count_of("FLINK_SEED", 0)
    lines, chance, flink = Lines(product.address, seed), random.Random(seed), job(naming)
    lines.send_under(disturb, product, [flink], chance, ends=count_of("FLINK_ENDS", 6))
    copies = [json.loads(value) for value in lines.eventually(product.address, "copies")]
    assert sorted((each["number"], each["word"]) for each in copies) == sorted(lines.words.items())
    lines.check_counts(
        (each["word"], each["total"]) for each in map(json.loads, lines.eventually(product.address, "counts"))
    )
