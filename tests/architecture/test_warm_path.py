"""What a shell starts as `millstream` is forked, and is to the shell as a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from running_server import ENVIRONMENT
from waiting import eventually
from warm_path import WarmPath


@pytest.fixture
def programs(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    with WarmPath(tmp_path_factory.mktemp("warm")) as warm:
        yield warm.folder


def in_shell(programs: Path, folder: Path, script: str, **more: str) -> tuple[int, str]:
    environment = {**ENVIRONMENT, "PATH": f"{programs}:{ENVIRONMENT['PATH']}", **more}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_it_has_the_shells_folder_streams_environment_and_its_own_exit_code(programs: Path, tmp_path: Path) -> None:
    script = "millstream sql --output json -f said.sql | cut -c -20; exit ${PIPESTATUS[0]}"
    (tmp_path / "said.sql").write_text("SHOW VARIABLES;")
    assert in_shell(programs, tmp_path, script) == (0, '{"@type":"variables"\n')
    code, said = in_shell(programs, tmp_path, "millstream server", MILLSTREAM_DATA=str(tmp_path / "said.sql"))
    assert (code, "said.sql" in said) == (1, True)


def processes_in(folder: Path) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == folder:
                yield int(process.name)


@pytest.mark.parametrize(("signal", "code"), [("TERM", 0), ("KILL", 137)])
def test_a_signal_ends_what_was_forked(signal: str, code: int, programs: Path, tmp_path: Path) -> None:
    script = f"""
        millstream server --data data --http 127.0.0.1:0 --kafka 127.0.0.1:0 > said &
        until grep -q http said; do sleep 0.1; done
        kill -{signal} $!
        wait $!"""
    assert in_shell(programs, tmp_path, script)[0] == code
    eventually(lambda: not list(processes_in(tmp_path)))


def test_what_only_a_new_process_reads_is_given_to_one(programs: Path, tmp_path: Path) -> None:
    code, said = in_shell(programs, tmp_path, "millstream --version", MALLOC_ARENA_MAX="1")
    assert (code, said.startswith("0.")) == (0, True)
