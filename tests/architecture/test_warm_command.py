"""What is forked from a process with all imports is as good as a new interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm_command
from running_server import ENVIRONMENT, ServerProcess, millstream
from warm_command import WarmPopen

COMMAND = [sys.executable, "-m", "millstream"]
forks = pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to an ancestor that asks for them")


def parent_and_command(number: int) -> tuple[int, bytes]:
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), Path(f"/proc/{number}/cmdline").read_bytes()


@forks
def test_a_server_is_a_child_that_was_forked_and_ends_by_a_signal(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "clean") as server:
        parent, command = parent_and_command(server.process.pid)
        assert parent == os.getpid()
        assert b"warm_command" in command
        assert server.stop(signal.SIGTERM) == 0
    with ServerProcess(tmp_path / "killed") as server:
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL


@forks
def test_a_server_has_loaded_what_its_first_row_needs(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    with ServerProcess(tmp_path) as server:
        assert "/pandas/_libs/" in Path(f"/proc/{server.process.pid}/maps").read_text()


def test_it_has_its_own_environment_folder_streams_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "said.sql").write_text("SHOW VARIABLES;")
    command = [*COMMAND, "sql", "--output", "json", "-f", "said.sql"]
    done = warm_command.run(command, env=ENVIRONMENT, cwd=tmp_path, timeout=50)
    assert (done.returncode, done.stdout.startswith('{"@type":"variables"'), done.stderr) == (0, True, "")
    named = millstream("server", env={"MILLSTREAM_DATA": str(tmp_path / "said.sql")})
    assert (named.returncode, "said.sql" in named.stderr, named.stdout) == (1, True, "")
    assert millstream("sql", "--output", "json", input="SHOW VARIABLES;").stdout == done.stdout


def test_a_failpoint_is_armed_from_the_start(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, failpoints="log.close:1:kill9") as server:
        assert server.stop(signal.SIGTERM) == -signal.SIGKILL


@forks
@pytest.mark.parametrize("variable", ["PYTHONHASHSEED", "ARROW_DEFAULT_MEMORY_POOL", "MALLOC_ARENA_MAX"])
def test_what_only_a_new_process_reads_is_given_to_one(variable: str) -> None:
    environment = {**ENVIRONMENT, variable: "1"}
    with WarmPopen([*COMMAND, "--version"], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert b"warm_command" not in parent_and_command(process.pid)[1]
        assert process.communicate(timeout=50)[0].startswith("0.")
