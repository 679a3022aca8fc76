"""A program that ends without closing its connections or Sandboxes, also by an exception, ends as any other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import tempfile, sys
tempfile.tempdir = sys.argv[1]
import millstream
ms = millstream.connect()
ms.sql("CREATE STREAM s (id INT KEY, a INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
ms.sql("CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;")
ms.insert("s", {"id": [1]})
"""

SANDBOX = """
import tempfile, sys
tempfile.tempdir = sys.argv[1]
from millstream.testing import Sandbox
sandbox = Sandbox()
sandbox.execute("CREATE STREAM s (id INT KEY, a INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
sandbox.execute("CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;")
sandbox.execute("INSERT INTO s VALUES (1, 2);")
sandbox.drain()
"""


@pytest.mark.parametrize("program", [PROGRAM, SANDBOX])
@pytest.mark.parametrize(("last", "status"), [("", 0), ("raise ValueError('mine')", 1)])
def test_a_program_may_end_without_closing(tmp_path: Path, program: str, last: str, status: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program + last, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == status, ended.stderr
    assert "terminate" not in ended.stderr
    assert "leaked" not in ended.stderr
    assert list(tmp_path.iterdir()) == []
