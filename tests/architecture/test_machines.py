"""The machines of replication are pure: what they do follows from what they are given, or no seed repeats a run."""

from __future__ import annotations

import ast

import pytest
from repository import REPOSITORY

FORBIDDEN = {
    "asyncio", "concurrent", "datetime", "multiprocessing", "os", "queue", "random", "secrets", "select", "selectors",
    "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
ROOMS = REPOSITORY / "logcore/replication"
SHELL = {"node", "disk"}  # what carries out what machines decide, on sockets and files
CORES = [path for path in (REPOSITORY / "logcore/cores").glob("*.py") if path.name != "__init__.py"]
MACHINES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in (*CORES, *ROOMS.rglob("*.py"))
    if path.relative_to(REPOSITORY).parts[2] not in SHELL
)


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_has_no_clock_no_chance_and_no_io(name: str) -> None:
    tree = ast.parse((REPOSITORY / name).read_text())
    imported = {module.split(".")[0] for node in ast.walk(tree) for module in _modules(node)}
    assert imported & FORBIDDEN == set()


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_does_not_ask_for_identity_or_hash(name: str) -> None:
    """Both differ from process to process, and with them what one seed does."""
    tree = ast.parse((REPOSITORY / name).read_text())
    calls = [
        f"{node.func.id}() in line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("id", "hash")
    ]
    assert calls == []


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module]
    return []
