"""Notebooks in a kernel of their own, as `jupyter nbconvert --execute` runs them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

CELL_SECONDS = 240


class Executed:
    """A notebook that has run. Cells go by their id, or by their number where they were made of texts."""

    def __init__(self, notebook: Any) -> None:
        self.notebook = notebook
        self._cells = {cell.id: cell for cell in notebook.cells}

    def outputs(self, cell: str | int) -> list[Any]:
        return (self.notebook.cells[cell] if isinstance(cell, int) else self._cells[cell]).outputs

    def text(self, cell: str | int) -> str:
        """What the cell shows, as text: results, prints, errors without their colours."""
        shown: list[str] = []
        for output in self.outputs(cell):
            if output.output_type == "error":
                shown.append(_plain("\n".join(output.traceback)))
            elif output.output_type == "stream":
                shown.append(output.text)
            else:
                shown.append(output.data.get("text/plain", ""))
        return "\n".join(shown)

    def html(self, cell: str | int) -> str:
        return "".join(output.data.get("text/html", "") for output in self.outputs(cell) if "data" in output)

    def widget(self, cell: str | int) -> dict[str, Any]:
        """The state that the cell's widget began with. What comes later is not all seen here: nbclient hears a cell's
        messages while that cell runs."""
        view = "application/vnd.jupyter.widget-view+json"
        (model,) = [output.data[view]["model_id"] for output in self.outputs(cell) if view in output.get("data", {})]
        state: dict[str, Any] = self.notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
        return state[model]["state"]


def run_notebook(path: Path, folder: Path, *more: str) -> Executed:
    """In: `folder`: where the kernel works. `more`: cells that run after the notebook's. Only cells with the tag
    `raises-exception` may fail."""
    notebook = nbformat.read(path, nbformat.NO_CONVERT)
    notebook.cells += map(new_code_cell, more)
    return _execute(notebook, folder)


def run_cells(cells: Iterable[str], folder: Path) -> Executed:
    return _execute(new_notebook(cells=[new_code_cell(cell) for cell in cells]), folder)


def _execute(notebook: Any, folder: Path) -> Executed:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("IPYTHONDIR", str(folder / "ipython"))  # no history of the machine's user
        environment.setenv("PLOOMBER_STATS_ENABLED", "false")  # JupySQL would tell its maker that it is used
        client = NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(folder)}})
        client.execute()
    return Executed(notebook)


def _plain(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)
