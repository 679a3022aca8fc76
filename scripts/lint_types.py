"""Runs pyrefly over all files, or over those that are named, as `make lint` and `make check` do.

The folders at the top are the packages of one namespace: pyrefly is told under which name Python imports each of the
product's files. An editor, which is not told, finds them in the tree of links (import_tree.py). Both at once would not
do: through a link each file would be analysed again, and its classes would be others.

    python -m scripts.lint_types [FILE …]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from scripts.import_tree import REPOSITORY, TREE, package_folders


def check(arguments: Sequence[str] = (), repository: Path = REPOSITORY) -> int:
    """The exit status of pyrefly. In: `arguments`: files or options."""
    with tempfile.TemporaryDirectory() as directory:
        names = Path(directory) / "names.json"
        names.write_text(json.dumps(module_names(repository)), encoding="utf-8")
        options = [f"--module-names={names}", *(f"--search-path={path}" for path in search_path(repository))]
        command = [sys.executable, "-m", "pyrefly", "check", *options, *arguments]
        return subprocess.run(command, cwd=repository, check=False).returncode


def module_names(repository: Path = REPOSITORY) -> dict[str, str]:
    """The name under which Python imports each file of the product: {"sql/types.py": "millstream.sql.types", …}."""
    names: dict[str, str] = {}
    for package, folder in package_folders(repository).items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            names[path.relative_to(repository).as_posix()] = ".".join([package, *parts]).removesuffix(".__init__")
    return names


def search_path(repository: Path = REPOSITORY) -> list[str]:
    """Where all other imports are looked for: the folders of pyproject.toml, without the tree of links."""
    with (repository / "pyproject.toml").open("rb") as file:
        paths: list[str] = tomllib.load(file)["tool"]["pyrefly"]["search-path"]
    return [path for path in paths if path != TREE.relative_to(REPOSITORY).as_posix()]


if __name__ == "__main__":
    sys.exit(check(sys.argv[1:]))
