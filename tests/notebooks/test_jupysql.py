"""JupySQL, which others wrote, in a kernel: through our SQLAlchemy dialect, and beside our own magics."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import run_cells

pytestmark = pytest.mark.timeout(600)

CELLS = (
    # JupySQL imports pyspark's remote client where there is pyspark, and fails where that one's own needs are not met.
    "import sys; sys.modules['pyspark'] = None",
    "%load_ext sql\n%config SqlMagic.feedback = 0\n%sql millstream:///engine",
    "%%sql\nCREATE STREAM cups (tea STRING KEY, price INT) WITH (kafka_topic='c', value_format='JSON', partitions=1);",
    "%%sql\nINSERT INTO cups (tea, price) VALUES ('mint', 3), ('assam', 4), ('mint', 3);",
    "%%sql rows <<\nSELECT tea, SUM(price) AS earned FROM cups GROUP BY tea ORDER BY tea",
    "rows.DataFrame().to_dict('list')",
    "least = 3",
    "%sql SELECT tea FROM cups WHERE price > {{least}}",
    "%sqlcmd tables",
    "%sqlcmd columns --table cups",
    "%load_ext millstream",
    "%sql SELECT COUNT(*) AS n FROM cups",
    "%%sql --save dear --no-execute\nSELECT * FROM cups WHERE price > 3",
    "%sql SELECT COUNT(*) AS how_many FROM dear",
)


def test_jupysql_reads_writes_and_inspects_and_keeps_its_magic(tmp_path: Path) -> None:
    ran = run_cells(CELLS, tmp_path)
    assert "Stream created" in ran.text(2)
    assert ran.text(5) == "{'TEA': ['assam', 'mint'], 'EARNED': [4, 6]}"
    assert "assam" in ran.text(7) and "mint" not in ran.text(7)
    assert "CUPS" in ran.text(8)
    assert "PRICE" in ran.text(9) and "INTEGER" in ran.text(9)
    assert " 3 " in ran.text(11), "our %%sql must not take the place of JupySQL's"
    assert "HOW_MANY" in ran.text(13) and " 1 " in ran.text(13)
