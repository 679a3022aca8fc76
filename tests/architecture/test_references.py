"""What comments and pages point to is there: files in backticks, and numbers of the rules of replication."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from repository import REPOSITORY

PATH = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|md|lark|toml))`|\]\(((?:[\w.-]+/)*[\w-]+\.(?:py|md|ipynb))\)")
NUMBER = re.compile(r"\b(?:R|I|T-L)\d{1,2}\b")
RULES = REPOSITORY / "docs" / "replication-rules.md"
CITING_RULES = ("logcore/replication/", "logcore/cluster/", "tests/logcore/repl", "tests/simulation/", "docs/repl")


def texts() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.lark", "*.toml"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.split() if (REPOSITORY / name).exists()]


TEXTS = texts()
BASE_NAMES = {Path(name).name for name in TEXTS}


def is_there(named: str, source: str) -> bool:
    """From the top, from a package, from the citing file's folder, or by its base name alone, which editors find."""
    if "/" not in named:
        return named in BASE_NAMES
    if (REPOSITORY / source).parent.joinpath(named).exists():
        return True
    return any(name == named or name.partition("/")[2] == named for name in TEXTS)


def test_files_that_are_named_are_there() -> None:
    named = {
        (found[0] or found[1], source)
        for source in TEXTS
        for found in PATH.findall((REPOSITORY / source).read_text(encoding="utf-8"))
    }
    assert {(name, source) for name, source in named if not is_there(name, source)} == set()


def test_the_page_on_architecture_is_short() -> None:
    lines = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 300
    assert [line for line in lines if len(line) > 120] == []


def test_numbers_of_rules_are_on_their_page() -> None:
    rows = set(re.findall(r"^\| ((?:R|I|T-L)\d+) \|", RULES.read_text(encoding="utf-8"), re.MULTILINE))
    cited = {
        (number, source)
        for source in TEXTS
        if source.startswith(CITING_RULES)
        for number in NUMBER.findall((REPOSITORY / source).read_text(encoding="utf-8"))
    }
    assert {number for number, _ in cited} >= {"R1", "I7", "T-L4"}
    assert {(number, source) for number, source in cited if number not in rows} == set()
