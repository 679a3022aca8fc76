"""What an unknown column is answered with."""

from __future__ import annotations

import pytest

from millstream.errors import UnknownColumn
from millstream.testing import Sandbox


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("urll", 'Did you mean "URL"?'),
        ('"url"', 'Did you mean "URL"?'),
        ("CURRENT_TIMESTAMP", "Write NOW()."),
        ("CURRENT_DATE", "Write CAST(NOW() AS DATE)."),
        ('"dq"', "Double quotes and backticks hold names. A text stands in single quotes: 'dq'."),
        ('"/home"', "Double quotes and backticks hold names. A text stands in single quotes: '/home'."),
        ("frobnicate", None),
        ("s.current_date", None),
    ],
)
def test_an_unknown_column(written: str, hint: str | None) -> None:
    with Sandbox() as sandbox:
        sandbox.execute("CREATE STREAM s (url STRING, d INT) WITH (kafka_topic='s', format='JSON', partitions=1);")
        with pytest.raises(UnknownColumn) as refused:
            sandbox.execute(f"CREATE STREAM o AS SELECT {written} AS c FROM s;")
    assert refused.value.hint == hint
