"""Where the project's own files are, for the tests that look at them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@cache
def pyproject() -> dict[str, Any]:
    """Parsed once: `module_name` asks for each of 700 files."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def package_dir() -> dict[str, str]:
    """The folder of each package at the top, by its dotted name: {"millstream.sql": "sql", …}."""
    return pyproject()["tool"]["setuptools"]["package-dir"]


def source_files(repository: Path = REPOSITORY) -> Iterator[Path]:
    """Every Python file of the product."""
    for folder in package_dir().values():
        for path in sorted((repository / folder).rglob("*.py")):
            if "__pycache__" not in path.parts:
                yield path


def module_name(path: Path, repository: Path = REPOSITORY) -> str:
    """The name under which Python imports a file of the product: sql/types.py is millstream.sql.types."""
    relative = path.relative_to(repository).with_suffix("")
    by_folder = {folder: package for package, folder in package_dir().items()}
    parts = [by_folder[relative.parts[0]], *relative.parts[1:]]
    return ".".join(parts).removesuffix(".__init__")
