"""docs/cluster.md is followed word by word, in one shell, with real processes; only the ports are free ones."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest
from running_server import ENVIRONMENT

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
FENCE = re.compile(r"^```(sh|python|rows|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PORTS = ("127.0.0.1:808", "127.0.0.1:909", "127.0.0.1:919")  # before the number of a node
BLOCK_S = 600.0


class Shell:
    """One bash that runs blocks one after the other; what it starts ends with it."""

    def __init__(self, folder: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
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


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path)
    yield opened
    opened.end()


@pytest.mark.timeout(1800)
def test_the_page_is_true_word_by_word(shell: Shell, tmp_path: Path) -> None:
    page = with_patience(with_free_ports(PAGE.read_text(encoding="utf-8")))
    said = ""
    for kind, block in FENCE.findall(page):
        match kind:
            case "sh":
                said = shell.run(block)
            case "python":
                name = block.partition("\n")[0].removeprefix("# ")
                (tmp_path / name).write_text(block, encoding="utf-8")
            case "rows":
                shown = {" ".join(line.split()) for line in said.splitlines()}
                missing = [row for row in block.splitlines() if row not in shown]
                assert missing == [], said
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
