"""Compiles the Java programs of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

# Of a run of seconds, optimizing the compiler's own code is half of the cost.
_JAVAC: Final = ("javac", "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-proc:none")


def compile_java(source: Path, libraries: str, folder: Path) -> None:
    """In: `libraries`: a class path; `folder`: gets the classes."""
    subprocess.run([*_JAVAC, "-cp", libraries, "-d", str(folder), str(source)], check=True, timeout=120)
