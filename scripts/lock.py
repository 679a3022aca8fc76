"""Writes `constraints.txt`: the versions of all packages that Millstream needs, directly or not, as they are installed
in the environment that runs this. `make lock` calls it after all extras were brought up to date.

    python scripts/lock.py [--check]

`--check` writes nothing and fails where the file and the environment differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FILE: Final = Path(__file__).resolve().parents[1] / "constraints.txt"
PROJECT: Final = "millstream"
HEAD: Final = """\
# The versions that the tests ran with. `make` installs these and no others: a fresh clone tests what was tested.
# `make lock` writes this file.
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a version differs")
    if not parser.parse_args(arguments).check:
        FILE.write_text(HEAD + "".join(f"{name}=={version}\n" for name, version in sorted(installed().items())))
        return 0
    differing = sorted(set(installed().items()) - set(locked().items()))
    for name, version in differing:
        print(f"{name} {version} is installed, and constraints.txt has {locked().get(name, 'nothing')}")
    if differing:
        print("`make distclean` and `make` install what the file says; `make lock` writes what is installed.")
    return bool(differing)


def locked() -> dict[str, str]:
    """Name → version, as the file has them."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    pins = (line.partition("==") for line in lines if line and not line.startswith("#"))
    return {name: version for name, _, version in pins}


def installed() -> dict[str, str]:
    """Name → version of every package that Millstream with any of its extras needs here."""
    versions: dict[str, str] = {}
    extras = distribution(PROJECT).metadata.get_all("Provides-Extra") or []
    todo = [Requirement(f"{PROJECT}[{','.join(extras)}]")]
    seen: set[tuple[str, str]] = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                found = distribution(name)
            except PackageNotFoundError:
                continue  # an extra that is not installed here: without Java there is no PySpark
            if name != PROJECT:
                versions[name] = found.version
            todo += _needed(found.requires or [], extra)
    return versions


def _needed(requirements: list[str], extra: str) -> Iterator[Requirement]:
    environment = {**{name: str(value) for name, value in default_environment().items()}, "extra": extra}
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield requirement


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
