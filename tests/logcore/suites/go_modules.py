"""Tests that come with a Go module: built from the module proxy into the user's cache, run, and read one by one."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from bench.maven import cache_folder

from .serving import needs, run

_BUILT_WITHIN_S: Final = 900.0
_RESULT: Final = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)

_COMPLAINT: Final = re.compile(r"^(?:panic: |fatal|\s+\S+\.go:\d+: |\s*testConsumer sendErr ).*", re.MULTILINE)


class GoTests:
    """Those of one package of a module."""

    def __init__(self, module: str, version: str, package: str = ".", tags: str = "") -> None:
        """Skips the test where there is no Go, or the proxy cannot be reached."""
        needs("go")
        sources = _downloaded(module, version)
        self._folder = sources / package
        self._program = cache_folder("go") / f"{module}/{package}@{version}{tags}.test"
        if not self._program.exists():
            _built(sources, package, tags, self._program)

    def run(self, pattern: str, *, within_s: float, without: str = "", **environment: str) -> Results:
        command = [str(self._program), "-test.v", f"-test.timeout={within_s}s", f"-test.run={pattern}"]
        command += [f"-test.skip={without}"] if without else []
        _, said = run(command, self._folder, timeout_s=within_s + 30, **environment)
        return Results(said)


class Results:
    """What the tests have printed, and how each has ended, those within a test too."""

    def __init__(self, said: str) -> None:
        self.said = said
        found: Sequence[tuple[str, str]] = _RESULT.findall(said)
        self.by_name: Mapping[str, str] = {name: result for result, name in found}

    def those(self, result: str) -> set[str]:
        return {name for name, found in self.by_name.items() if found == result}

    def __str__(self) -> str:
        counts = ", ".join(f"{len(self.those(result))} {result}" for result in ("PASS", "SKIP", "FAIL"))
        complaints = dict.fromkeys(_COMPLAINT.findall(self.said))
        lines = [f"{counts}, load {os.getloadavg()[0]:.0f}", *sorted(self.those("FAIL")), *list(complaints)[:100]]
        return "\n".join([*lines, self.said[-500:]])


def installed(program: str, version: str) -> str:
    """Where a program stands that the proxy has. Skips the test where it cannot be had."""
    needs("go")
    folder = cache_folder("go") / f"{program}@{version}"
    if not folder.is_dir():
        done = _go("install", f"{program}@{version}", environment={"GOBIN": str(folder)})
        if done.returncode:
            pytest.skip(f"{program} cannot be had: {done.stderr.strip()[-300:]}")
    return str(folder / program.rpartition("/")[2])


def _downloaded(module: str, version: str) -> Path:
    found = _go("mod", "download", "-json", f"{module}@{version}")
    if found.returncode:
        pytest.skip(f"{module} cannot be had: {found.stdout.strip()[-300:]}{found.stderr.strip()[-300:]}")
    return Path(json.loads(found.stdout)["Dir"])


def _built(sources: Path, package: str, tags: str, program: Path) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    began = program.with_suffix(f".{os.getpid()}")
    built = _go("test", "-c", "-tags", tags, "-o", str(began), f"./{package}", folder=sources)
    if built.returncode:
        pytest.skip(f"its tests cannot be built: {built.stderr.strip()[-500:]}")
    began.rename(program)


def _go(
    *arguments: str, folder: Path = Path("/"), environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["go", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_BUILT_WITHIN_S,
        check=False,
    )
