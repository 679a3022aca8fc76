"""What stands for other systems' names: the hints name types and functions that there are."""

from __future__ import annotations

import re

import pytest

from millstream.sql.foreign_names import FUNCTIONS_ELSEWHERE, TYPES_ELSEWHERE, function_hint, type_hint
from millstream.sql.functions.catalog import FUNCTIONS
from millstream.sql.parser import parse_type
from millstream.sql.types import NamedType

SYNTAX = {"CASE", "CAST", "IN", "TUMBLING", "HOPPING"}


@pytest.mark.parametrize(("name", "instead"), FUNCTIONS_ELSEWHERE.items())
def test_a_hint_names_functions_that_there_are(name: str, instead: str) -> None:
    called = set(re.findall(r"\b([A-Z_]+) ?\(", instead)) - SYNTAX
    assert called <= set(FUNCTIONS), f"{name}: {instead}"


@pytest.mark.parametrize(("name", "instead"), TYPES_ELSEWHERE.items())
def test_a_hint_names_a_type_that_there_is(name: str, instead: str) -> None:
    assert isinstance(parse_type(name), NamedType), f"{name} is a type here"
    assert not isinstance(parse_type(instead.replace("…", "a INT" if "STRUCT" in instead else "INT")), NamedType)


def test_names_that_nobody_has_get_no_hint() -> None:
    assert function_hint("FROBNICATE") is None
    assert type_hint("THING") is None
