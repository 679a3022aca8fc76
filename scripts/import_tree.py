"""Lay out the packages the way Python imports them: a tree of links, `.venv/import-tree/millstream/sql` and so on.

The folders at the top are mapped into one namespace by pyproject.toml. Python learns that from the editable
install; import-linter and pyright read directories, so they get one. Links to folders stay true as files come and
go; the modules of the face package are linked one by one, because other packages hang below it.

    python scripts/import_tree.py            # make or renew the tree, print its path
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TREE = REPOSITORY / ".venv" / "import-tree"
ROOT_PACKAGE = "millstream"


def package_folders(repository: Path = REPOSITORY) -> dict[str, Path]:
    """The folder of each package that pyproject.toml maps, by dotted name."""
    with (repository / "pyproject.toml").open("rb") as file:
        mapping: dict[str, str] = tomllib.load(file)["tool"]["setuptools"]["package-dir"]
    return {package: repository / folder for package, folder in mapping.items()}


def make_import_tree(tree: Path = TREE, repository: Path = REPOSITORY) -> Path:
    """Renew the tree of links, and return the directory that belongs on the import path."""
    root = tree / ROOT_PACKAGE
    if root.exists():
        shutil.rmtree(root)
    root.mkdir(parents=True)
    folders = package_folders(repository)
    for entry in folders.pop(ROOT_PACKAGE).iterdir():
        if entry.name != "__pycache__":
            (root / entry.name).symlink_to(entry)
    for package, folder in folders.items():
        (root / package.removeprefix(f"{ROOT_PACKAGE}.")).symlink_to(folder, target_is_directory=True)
    return tree


if __name__ == "__main__":
    print(make_import_tree())
