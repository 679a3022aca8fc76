"""Java libraries from Maven Central, for what we are measured and tested against. They are kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

_TIMEOUT_S: Final = 120
_PROJECT: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>millstream</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY: Final = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
_EXCLUSION: Final = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class Unavailable(Exception):
    """What is asked for cannot be had on this machine; the message says why."""


@cache
def jars(*coordinates: str, alone: bool = False) -> Sequence[Path]:
    """These libraries ("group:artifact:version") and, unless they are wanted `alone`, all that they need at run time.

    Raises `Unavailable`.
    """
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise Unavailable(f"needs {program} on PATH, for libraries from Maven Central")
    name = hashlib.sha256(f"{coordinates} {alone}".encode()).hexdigest()[:16]
    folder = cache_folder("jars") / name
    if not folder.is_dir():
        _resolve(coordinates, folder, alone=alone)
    return tuple(sorted(folder.glob("*.jar")))


def cache_folder(kind: str) -> Path:
    """Where what was downloaded or built is kept for the next time."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "millstream" / kind


def _resolve(coordinates: Sequence[str], folder: Path, *, alone: bool) -> None:
    """Fills the folder; it is there whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    exclusion = _EXCLUSION if alone else ""
    dependencies = "".join(_DEPENDENCY.format(*each.split(":"), exclusion) for each in coordinates)
    with tempfile.TemporaryDirectory(dir=folder.parent) as project:
        Path(project, "pom.xml").write_text(_PROJECT.format(dependencies=dependencies))
        target = Path(project, "jars")
        command = ["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        _run([*command, f"-DoutputDirectory={target}"], project)
        if not folder.is_dir():  # another process may have been faster
            target.rename(folder)


def _run(command: Sequence[str], folder: str) -> None:
    try:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"Maven Central gave no answer within {_TIMEOUT_S} seconds") from error
    if run.returncode:
        said = run.stdout.strip().splitlines() or ["mvn failed"]
        raise Unavailable(f"libraries from Maven Central cannot be had: {said[0][:500]}")
