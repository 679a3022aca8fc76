"""Codecs take what no statement may declare, where somebody needs it, and refuse the rest as the planner does."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millstream.errors import FormatError
from millstream.executor.formats import decoder, encoder
from millstream.planner.formats import FORMATS, check_columns
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec
from millstream.sql.types import INTEGER, STRING, Array, Map

NUMBERED = Column("M", Map(INTEGER, STRING))


def test_json_finds_partitions_by_columns_that_no_statement_may_give_it() -> None:
    with pytest.raises(FormatError, match="STRING keys"):
        check_columns("JSON", [NUMBERED], "Value")
    maps = pa.array([[(1, "a")], [(2, "a")], [(1, "a")]], NUMBERED.type.arrow)
    written = encoder(FormatSpec("JSON", wrap_single=False), [NUMBERED]).encode([maps])
    assert written[0] == written[2] != written[1]


@pytest.mark.parametrize("name", ["DELIMITED", "KAFKA", "NONE"])
def test_other_formats_refuse_the_columns_that_the_planner_refuses(name: str) -> None:
    column = Column("A", Array(STRING))
    reason = FORMATS[name].refusal([column], "Value")
    for make in (decoder, encoder):
        with pytest.raises(FormatError) as caught:
            make(FormatSpec(name), [column])
        assert str(reason) in str(caught.value)
        assert caught.value.hint
