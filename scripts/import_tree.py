"""Lay out the packages the way Python imports them: a tree of links, `build/import-tree/millstream/sql` and so on.

The folders at the top are mapped into one namespace by pyproject.toml. Python learns that from the editable
install; import-linter and editors read directories, so they get one. Links to folders stay true as files come and
go; the modules of the face package are linked one by one, because other packages hang below it.

    python scripts/import_tree.py            # make or renew the tree, print its path
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TREE = REPOSITORY / "build" / "import-tree"
ROOT_PACKAGE = "millstream"


def package_folders(repository: Path = REPOSITORY) -> dict[str, Path]:
    """The folder of each package that pyproject.toml maps, by dotted name."""
    with (repository / "pyproject.toml").open("rb") as file:
        mapping: dict[str, str] = tomllib.load(file)["tool"]["setuptools"]["package-dir"]
    return {package: repository / folder for package, folder in mapping.items()}


def links(repository: Path = REPOSITORY) -> dict[str, Path]:
    """What each entry of the tree's package points at, by its name."""
    folders = package_folders(repository)
    face = {entry.name: entry for entry in folders.pop(ROOT_PACKAGE).iterdir() if entry.name != "__pycache__"}
    return face | {package.removeprefix(f"{ROOT_PACKAGE}."): folder for package, folder in folders.items()}


def make_import_tree(tree: Path = TREE, repository: Path = REPOSITORY) -> Path:
    """Make or renew the tree of links, and return the directory that belongs on the import path.

    Only what differs is touched, and each link is replaced in one step: lint and the tests may do this beside each
    other, and beside an editor that reads the tree.
    """
    root = tree / ROOT_PACKAGE
    root.mkdir(parents=True, exist_ok=True)
    wanted = links(repository)
    for entry in root.iterdir():
        if entry.name not in wanted or not entry.is_symlink():
            _remove(entry)
    for name, target in wanted.items():
        _link(root / name, target)
    return tree


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


def _link(link: Path, target: Path) -> None:
    with contextlib.suppress(OSError):
        if link.readlink() == target:
            return
    with tempfile.TemporaryDirectory(dir=link.parent.parent) as directory:
        new = Path(directory) / link.name
        new.symlink_to(target)
        new.replace(link)


if __name__ == "__main__":
    print(make_import_tree())
