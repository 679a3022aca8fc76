"""Runs pyright over all files, as `make lint` does, or over what changed, as `make check` does.

Pyright reads the product in the tree of links (import_tree.py), and so names its files; here they get their own names.

With `--changed` it looks at the files that are not committed yet, and at those that import them: when a file changes,
its own types can break, and those of the files that name it in an import. `make lint` finds the few errors further
away. Where all is committed, the files of the last commit are checked; where pyright's settings or the installed
packages changed, all files.

    python -m scripts.lint_types [--changed]
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from scripts.import_tree import REPOSITORY, ROOT_PACKAGE, TREE, links, make_import_tree

CONCERNS_ALL: Final = ("pyproject.toml", "constraints.txt", "typings/")


def check(*, only_changed: bool) -> int:
    """The exit status of pyright."""
    if not only_changed:
        return _pyright([])
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


def in_tree(name: str, repository: Path = REPOSITORY, tree: Path = TREE) -> str:
    """The name under which pyright knows a file of the repository; others keep theirs."""
    for entry, target in links(repository).items():
        relative = target.relative_to(repository).as_posix()
        if name == relative or name.startswith(f"{relative}/"):
            return (tree / ROOT_PACKAGE / entry / Path(name).relative_to(relative)).as_posix()
    return name


def own_names(line: str, repository: Path = REPOSITORY, tree: Path = TREE) -> str:
    """A line of pyright's, with the names of files in the repository."""
    root = f"{tree / ROOT_PACKAGE}/"
    if root not in line:
        return line
    before, _, path = line.partition(root)
    entry = re.match(r"[^/:\s]+", path)
    target = links(repository).get(entry[0]) if entry else None
    return line if entry is None or target is None else f"{before}{target}{path[entry.end() :]}"


def _pyright(files: list[str]) -> int:
    make_import_tree()
    command = [sys.executable, "-m", "pyright", *map(in_tree, files)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            print(own_names(line), end="", flush=True)
    return running.returncode


if __name__ == "__main__":
    sys.exit(check(only_changed="--changed" in sys.argv))
