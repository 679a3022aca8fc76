"""What the tests of a folder share lives as long as they run, and no longer."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from of_folder import end_others, of_folder

HERE, THERE = Path("tests/here"), Path("tests/there")


def test_a_part_is_made_once_and_ends_before_the_tests_of_another_folder() -> None:
    said: list[str] = []

    @contextmanager
    def broker() -> Generator[int]:
        said.append("begins")
        yield len(said)
        said.append("ends")

    assert [of_folder(HERE, "broker", broker) for _ in range(2)] == [1, 1]
    end_others(HERE)
    assert said == ["begins"]
    end_others(THERE)
    assert said == ["begins", "ends"]
    assert of_folder(HERE, "broker", broker) == 3, "who comes back gets another one"
    end_others(None)
    assert said == ["begins", "ends"] * 2


def test_what_cannot_be_made_is_said_to_each_test() -> None:
    def missing() -> Generator[int]:
        pytest.skip("there is no Java")

    for _ in range(2):
        with pytest.raises(pytest.skip.Exception):
            of_folder(HERE, "broker", contextmanager(missing))
    end_others(None)
