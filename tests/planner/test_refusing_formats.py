"""A format that cannot hold the columns of a statement: which ones can."""

from __future__ import annotations

import pytest

from millstream.errors import FormatError
from millstream.planner.formats import check_columns
from millstream.planner.schema import Column
from millstream.sql.types import INTEGER, STRING, Array


@pytest.mark.parametrize(
    ("name", "part", "columns", "others"),
    [
        ("KAFKA", "Key", [Column("A", STRING), Column("B", STRING)], {"JSON", "AVRO", "DELIMITED"}),
        ("DELIMITED", "Value", [Column("A", Array(INTEGER))], {"JSON", "AVRO"}),
    ],
)
def test_an_error_names_the_property_and_the_formats_that_can(
    name: str, part: str, columns: list[Column], others: set[str]
) -> None:
    with pytest.raises(FormatError) as refused:
        check_columns(name, columns, part)
    hint = refused.value.hint or ""
    assert hint.startswith(f"WITH ({part.upper()}_FORMAT='…') sets another format: ")
    named = hint.partition(": ")[2].removesuffix(" can hold this.").split(", ")
    assert others <= set(named) and name not in named and "ARROW" not in named
