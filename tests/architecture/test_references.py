"""References in comments, docstrings and pages resolve: backticked paths and patterns, links, rule and KIP numbers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePath

from repository import REPOSITORY

PATH = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|md|lark|toml))`|\]\(((?:[\w.-]+/)*[\w-]+\.(?:py|md|ipynb))\)")
GLOB = re.compile(r"`((?:[\w.-]+/)*[\w-]*\*[\w-]*\.py)`")
FOLDER = re.compile(r"`((?:[a-z_][\w.-]*/)+)`")
KIP = re.compile(r"\bKIP-\d+\b")
NUMBER = re.compile(r"\b(?:R|I|T-L)\d{1,2}\b")
RULES = REPOSITORY / "docs" / "replication-rules.md"
THIS = "tests/architecture/test_references.py"


def texts() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.lark", "*.toml", "Makefile", ".ci/run"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.split() if (REPOSITORY / name).exists()]


TEXTS = texts()
TOPS = {name.partition("/")[0] for name in TEXTS if "/" in name}
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


def test_patterns_of_files_match_some() -> None:
    named = {
        (pattern, source)
        for source in TEXTS
        for pattern in GLOB.findall((REPOSITORY / source).read_text(encoding="utf-8"))
    }
    assert {pattern for pattern, _ in named} >= {"sql/build_*.py"}
    unmatched = {each for each in named if not any(PurePath(name).match(each[0]) for name in TEXTS)}
    assert unmatched == set()


def test_folders_that_are_named_are_there() -> None:
    named = {
        (folder, source)
        for source in TEXTS
        for folder in FOLDER.findall((REPOSITORY / source).read_text(encoding="utf-8"))
        if folder.partition("/")[0] in TOPS
    }
    assert named, "the pattern finds some"
    assert {(folder, source) for folder, source in named if not (REPOSITORY / folder).is_dir()} == set()


def test_the_page_on_architecture_is_short() -> None:
    lines = (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 300
    assert [line for line in lines if len(line) > 120] == []


def test_proposals_that_are_cited_are_on_their_page() -> None:
    rows = set(re.findall(r"^\| (KIP-\d+) \|", RULES.read_text(encoding="utf-8"), re.MULTILINE))
    cited = {
        (number, source)
        for source in TEXTS
        for number in KIP.findall((REPOSITORY / source).read_text(encoding="utf-8"))
    }
    assert {(number, source) for number, source in cited if number not in rows} == set()
    above = RULES.read_text(encoding="utf-8").partition("## Proposals")[0]
    elsewhere = {number for number, source in cited if source != "docs/replication-rules.md"}
    assert rows == elsewhere | set(KIP.findall(above)), "nobody cites the others"


def test_numbers_of_rules_are_on_their_page() -> None:
    rows = set(re.findall(r"^\| ((?:R|I|T-L)\d+) \|", RULES.read_text(encoding="utf-8"), re.MULTILINE))
    cited = {
        (number, source)
        for source in TEXTS
        if source != THIS
        for number in NUMBER.findall((REPOSITORY / source).read_text(encoding="utf-8"))
    }
    assert {number for number, _ in cited} >= {"R1", "I7", "T-L4"}
    assert {(number, source) for number, source in cited if number not in rows} == set()
