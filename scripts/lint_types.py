"""Runs pyright over the files that are not committed yet, and over those that import them: what `make check` does.

All files take pyright two minutes of CPU. When a file changes, its own types can break, and those of the files that
name it in an import. `make lint`, which runs all, finds the few errors further away.

Where all is committed, the files of the last commit are checked; where pyright's settings or the installed packages
changed, all files.

    python scripts/lint_types.py
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
CONCERNS_ALL: Final = ("pyproject.toml", "constraints.txt", "typings/")


def check() -> int:
    """The exit status of pyright."""
    changed = changed_files(REPOSITORY)
    if changed is None or any(name.startswith(CONCERNS_ALL) for name in changed):
        return _pyright([])
    checked = sorted(concerned(changed, REPOSITORY))
    print(f"lint_types: {len(checked)} files, which changed or import what changed", flush=True)
    return _pyright(checked) if checked else 0


def changed_files(repository: Path) -> set[str] | None:
    """Those not committed, deleted ones too; where there are none, the last commit's. None where git knows nothing."""
    status = _git(repository, "status", "--porcelain", "--no-renames", "--untracked-files=all", "-z")
    if status is None:
        return None
    uncommitted = {line[3:] for line in status.split("\0") if line}
    if uncommitted:
        return uncommitted
    last = _git(repository, "show", "--format=", "--name-only", "--no-renames", "-m", "-z", "HEAD")
    return None if last is None else {name for name in last.split("\0") if name}


def concerned(changed: Iterable[str], repository: Path) -> set[str]:
    """The Python files among them that exist, and those with an import of one.

    A module is known by the last part of its name: a file too many does no harm, and hardly any two have the same.
    """
    modules = {name for name in changed if name.endswith(".py")}
    names = {_last_name(module) for module in modules}
    listed = _git(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py") or ""
    found: set[str] = set()
    for name in {*listed.split("\0"), *modules} - {""}:
        path = repository / name
        if path.is_file() and (name in modules or _imports(path, names)):
            found.add(name)
    return found


def _last_name(module: str) -> str:
    path = Path(module)
    return path.parent.name if path.stem == "__init__" else path.stem


def _imports(path: Path, names: set[str]) -> bool:
    text = path.read_text(encoding="utf-8")
    if not any(name in text for name in names):
        return False
    return not names.isdisjoint(_imported(ast.parse(text)))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.rpartition(".")[2] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").rpartition(".")[2]
            yield from (alias.name for alias in node.names)


def _git(repository: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def _pyright(files: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pyright", *files], cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(check())
