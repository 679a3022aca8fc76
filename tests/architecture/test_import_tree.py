"""The tree of links shows each file of the product once, and whoever reads it does not notice that it is renewed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from repository import REPOSITORY

from scripts.import_tree import links, make_import_tree

PYPROJECT = """
[tool.setuptools.package-dir]
"millstream" = "millstream"
"millstream.sql" = "sql"
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    for name in ("millstream/__init__.py", "millstream/errors.py", "millstream/commands/run.py", "sql/types.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


def reached(tree: Path) -> set[str]:
    """The modules below the tree, by the path that they are imported under."""
    walked = os.walk(tree, followlinks=True)
    return {str((Path(at) / file).relative_to(tree)) for at, _, files in walked for file in files}


EXPECTED = {
    "millstream/__init__.py",
    "millstream/errors.py",
    "millstream/commands/run.py",
    "millstream/sql/types.py",
}


def test_the_tree_has_each_file_where_python_imports_it_from(repository: Path, tmp_path: Path) -> None:
    assert reached(make_import_tree(tmp_path / "tree", repository)) == EXPECTED


def test_what_is_outdated_goes_and_what_is_new_comes(repository: Path, tmp_path: Path) -> None:
    root = make_import_tree(tmp_path / "tree", repository) / "millstream"
    (repository / "millstream/errors.py").rename(repository / "millstream/faults.py")
    (root / "sql").unlink()
    (root / "sql").symlink_to(tmp_path)
    (root / "commands").unlink()
    (root / "commands").mkdir()
    (root / "commands/stray.py").write_text("")
    (root / "stray.py").write_text("")
    make_import_tree(tmp_path / "tree", repository)
    assert reached(tmp_path / "tree") == EXPECTED - {"millstream/errors.py"} | {"millstream/faults.py"}


def test_a_tree_that_is_true_is_not_touched(repository: Path, tmp_path: Path) -> None:
    root = make_import_tree(tmp_path / "tree", repository) / "millstream"
    before = {entry.name: entry.lstat().st_ino for entry in root.iterdir()}
    make_import_tree(tmp_path / "tree", repository)
    assert {entry.name: entry.lstat().st_ino for entry in root.iterdir()} == before


def test_no_link_is_ever_missing_while_several_renew_the_tree(repository: Path, tmp_path: Path) -> None:
    tree = make_import_tree(tmp_path / "tree", repository)
    (tmp_path / "moved").symlink_to(repository)
    with ThreadPoolExecutor() as makers:
        renewing = [
            makers.submit(lambda at=at: [make_import_tree(tree, at) for _ in range(60)])
            for at in (repository, tmp_path / "moved")
        ]
        seen = [EXPECTED]
        while not all(maker.done() for maker in renewing):
            seen.append({name for name in EXPECTED if (tree / name).exists()})
    for maker in renewing:
        maker.result()
    assert all(names == EXPECTED for names in seen)
    assert reached(tree) == EXPECTED


def test_the_tree_reaches_all_files_of_the_product(tmp_path: Path) -> None:
    tree = make_import_tree(tmp_path / "tree")
    folders = {REPOSITORY / target.relative_to(REPOSITORY).parts[0] for target in links().values()}
    product = {path.resolve() for folder in folders for path in folder.rglob("*.py")}
    assert {path.resolve() for name in reached(tree) if (path := tree / name).suffix == ".py"} == product
