"""The cells of docs/notebooks.md run as they stand there."""

from __future__ import annotations

import re
from typing import Any

from IPython.utils.capture import capture_output
from repository import REPOSITORY

PAGE = (REPOSITORY / "docs" / "notebooks.md").read_text(encoding="utf-8")
CELLS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_cells_of_the_page_run_in_order(shell: Any) -> None:
    assert len(CELLS) >= 10
    for number, cell in enumerate(CELLS):
        with capture_output():
            ran = shell.run_cell(cell, store_history=True, cell_id=str(number))
        assert ran.success, cell
    assert shell.user_ns["large"].fetchall() == [("bo", 4), ("ada", 5)]
    assert shell.user_ns["live"].status.state == "stopped"
    assert shell.user_ns["chart"].status.state == "running"
