"""`make check` looks at the types of what changed, and of what imports it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.lint_types import changed_files, concerned


def git(repository: Path, *arguments: str) -> None:
    person = ["-c", "user.name=ana", "-c", "user.email=ana@example.org"]
    subprocess.run(["git", "-C", str(repository), *person, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    files = {
        "sql/types.py": "class SqlType: ...\n",
        "sql/words/__init__.py": "WORD = 1\n",
        "sql/by_name.py": "from .types import SqlType\n",
        "sql/by_module.py": "def f():\n    from . import types\n",
        "sql/in_full.py": "import millstream.sql.types\n",
        "sql/of_words.py": "from .words import WORD\n",
        "sql/far.py": "from .by_name import SqlType\n",
        "sql/says_so.py": '"""Nothing of types."""\n',
        "README.md": "types\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "all")
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ("sql/types.py", {"sql/types.py", "sql/by_name.py", "sql/by_module.py", "sql/in_full.py"}),
        ("sql/words/__init__.py", {"sql/words/__init__.py", "sql/of_words.py"}),
        ("sql/far.py", {"sql/far.py"}),
        ("README.md", set[str]()),
    ],
)
def test_a_file_concerns_itself_and_those_that_import_it(changed: str, found: set[str], repository: Path) -> None:
    assert concerned([changed], repository) == found


def test_a_file_that_is_gone_concerns_those_that_import_it(repository: Path) -> None:
    (repository / "sql/types.py").unlink()
    assert changed_files(repository) == {"sql/types.py"}
    assert concerned(["sql/types.py"], repository) == {"sql/by_name.py", "sql/by_module.py", "sql/in_full.py"}


def test_what_is_not_committed_changed_and_else_what_the_last_commit_has(repository: Path) -> None:
    (repository / "sql/new.py").write_text("")
    (repository / "sql/far.py").write_text("FAR = 1\n")
    git(repository, "add", "sql/far.py")
    assert changed_files(repository) == {"sql/new.py", "sql/far.py"}
    git(repository, "commit", "-qm", "far")
    assert changed_files(repository) == {"sql/new.py"}
    (repository / "sql/new.py").unlink()
    assert changed_files(repository) == {"sql/far.py"}


def test_where_there_is_no_git_nobody_knows(tmp_path: Path) -> None:
    assert changed_files(tmp_path) is None
