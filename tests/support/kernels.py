"""Notebooks in a kernel of their own, as `jupyter nbconvert --execute` runs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from forked import forking
from jupyter_client.provisioning import local_provisioner
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from repository import REPOSITORY

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
    notebook.cells += map(new_code_cell, more)  # pyrefly: ignore[missing-attribute]
    return _execute(notebook, folder)


def run_cells(cells: Iterable[str], folder: Path) -> Executed:
    return _execute(new_notebook(cells=[new_code_cell(cell) for cell in cells]), folder)


def _execute(notebook: Any, folder: Path) -> Executed:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("IPYTHONDIR", str(folder / "ipython"))  # no history of the machine's user
        environment.setattr(local_provisioner, "launch_kernel", _ForkedKernel)
        environment.setenv("PLOOMBER_STATS_ENABLED", "false")  # JupySQL would tell its maker that it is used
        client = NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(folder)}})
        client.execute()
    return Executed(notebook)


_KERNEL = """
import atexit, os, runpy, sys
os.setsid()  # its signals are sent to its process group
os.environ.clear()
os.environ.update(environment)
os.environ["JPY_PARENT_PID"] = str(os.getppid())  # the kernel ends with it
os.chdir(folder)
started.send(os.getpid())
started.close()
sys.argv[:], sys.path[:] = arguments, path
try:
    runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)
finally:
    atexit._run_exitfuncs()  # a process that is forked ends without
"""


class _ForkedKernel:
    """What Jupyter takes for the `Popen` of a kernel, forked from a process that has imported what Millstream needs: an
    engine's imports take three seconds of CPU."""

    stdin = stdout = stderr = None

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], cwd: str, **_: object) -> None:
        """In: `command`: `python … -m ipykernel_launcher -f FILE`."""
        starting, started = forking().Pipe(duplex=False)
        names: dict[str, object] = {"environment": {**env}, "folder": cwd, "started": started}
        names["arguments"] = [*command[command.index("ipykernel_launcher") :]]
        own = {str(REPOSITORY), str(Path(__file__).parent)}  # pytest's: JupySQL is a module `sql`, too
        names["path"] = [entry for entry in sys.path if str(Path(entry).absolute()) not in own]
        self._process = forking().Process(target=exec, args=(_KERNEL, names))
        self._process.start()
        started.close()
        self.pid: int = starting.recv()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()


def _plain(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)
