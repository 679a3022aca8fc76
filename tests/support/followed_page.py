"""A page is followed word by word, in one shell, with real processes; only the ports are free ones."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from queue import Queue

from running_server import ENVIRONMENT
from warm_path import WarmPath

FENCE = re.compile(r"^```(sh|python|rows|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PORTS = ("127.0.0.1:808", "127.0.0.1:909", "127.0.0.1:919")  # before the number of a node
BLOCK_S = 600.0


class Shell:
    """One bash that runs blocks one after the other; what it starts ends with it."""

    def __init__(self, folder: Path, programs: Path) -> None:
        """In: `programs`: a folder for the beginning of PATH."""
        path = os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"]))
        self._lines: Queue[str | None] = Queue()
        self._process = subprocess.Popen(
            ["bash"], cwd=folder, env={**ENVIRONMENT, "PATH": path, "MILLSTREAM_EXECUTOR": "duckdb"}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def run(self, block: str) -> str:
        """Its output. Every command of it has to succeed."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{{ set -e; {block}\nset +e; }} </dev/null\necho '--- done'\n")
        self._process.stdin.flush()
        said: list[str] = []
        while (line := self._lines.get(timeout=BLOCK_S)) != "--- done\n":
            assert line is not None, f"this failed:\n{block}\n{''.join(said)}"
            said.append(line)
        return "".join(said)

    def end(self) -> None:
        os.killpg(self._process.pid, 9)
        self._process.wait(60)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def follow(page: Path, folder: Path) -> None:
    """Runs the page's commands in this folder, and compares what they print with what the page says: each line of
    `rows` is printed, once; a `text` is all that is printed, but for figures."""
    with tempfile.TemporaryDirectory(prefix="millstream-") as programs, WarmPath(Path(programs)) as warm:
        shell = Shell(folder, warm.folder)
        try:
            _follow(with_patience(with_free_ports(page.read_text(encoding="utf-8"))), shell, folder)
        finally:
            shell.end()


def _follow(page: str, shell: Shell, folder: Path) -> None:
    said = ""
    for kind, block in FENCE.findall(page):
        match kind:
            case "sh":
                said = shell.run(block)
            case "python":
                name = block.partition("\n")[0].removeprefix("# ")
                (folder / name).write_text(block, encoding="utf-8")
            case "rows":
                shown = [" ".join(line.split()) for line in said.splitlines()]
                assert [row for row in block.splitlines() if shown.count(row) != 1] == [], said
            case _:
                assert shape(said) == shape(block), said


def with_patience(page: str) -> str:
    """Three servers need longer to start while other tests keep the machine busy."""
    return re.sub(r"--wait \d+", "--wait 500", page)


def with_free_ports(page: str) -> str:
    """Four ports in a row for each of the three, the last digit being the number of the node."""
    free = (tens for tens in range(2000 + os.getpid() % 500, 3200) if all(is_free(10 * tens + n) for n in range(1, 5)))
    for prefix, tens in zip(PORTS, free, strict=False):
        page = page.replace(prefix, f"127.0.0.1:{tens}")
    return page


def is_free(port: int) -> bool:
    with socket.socket() as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def shape(status: str) -> list[str]:
    """What does not differ from time to time: not who decides, and no figures."""
    lines = status.replace(", controller", "").splitlines()
    return [re.sub(r"[\d.:]+", "#", " ".join(line.split())) for line in lines if not line.startswith("---")]
