"""docs/postgres.md is true: psql prints what the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from repository import REPOSITORY
from running_server import service_in

PAGE = (REPOSITORY / "docs" / "postgres.md").read_text(encoding="utf-8")


def test_psql_prints_what_the_page_shows(tmp_path: Path) -> None:
    program = shutil.which("psql")
    if program is None:
        pytest.skip("psql is not installed")
    examples = re.findall(r"```sql\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 3
    with service_in(tmp_path / "data", pg="127.0.0.1:0") as service:
        assert service.pg_address is not None
        dsn = f"host=127.0.0.1 port={service.pg_address.port} user=ana dbname=millstream"
        for statements, shown in examples:
            done = subprocess.run(
                [program, "-X", dsn], input=statements, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
                capture_output=True, text=True, timeout=100, check=False,
            )  # fmt: skip
            assert done.stdout + done.stderr == shown
