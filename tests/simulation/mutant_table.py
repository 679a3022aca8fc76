"""The table of planted bugs in docs/replication.md: `python -m tests.simulation.mutant_table` writes it anew."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .mutants import all_mutants
from .mutants.base import Mutant

DOCS: Final = Path(__file__).resolve().parents[2] / "docs" / "replication.md"
_BEGIN: Final = "<!-- planted bugs -->\n"
_END: Final = "<!-- end of planted bugs -->\n"


def table_of(mutants: Iterable[Mutant]) -> str:
    rows = sorted((_order(mutant.rule), mutant.name, mutant) for mutant in mutants)
    lines = ["| rule | planted bug | what it does | found by |", "| --- | --- | --- | --- |"]
    for _, name, mutant in rows:
        found = "random faults" if isinstance(mutant.found_by, int) else f"`{mutant.found_by}`"
        lines.append(f"| {mutant.rule} | `{name}` | {mutant.what} | {found} |")
    return "\n".join(lines) + "\n"


def table_in_docs() -> str:
    return DOCS.read_text().split(_BEGIN)[1].split(_END)[0]


def _order(rule: str) -> tuple[str, int]:
    first = rule.split(",")[0]
    letters = first.rstrip("0123456789")
    return letters, int(first.removeprefix(letters))


def main() -> None:
    text = DOCS.read_text()
    before, rest = text.split(_BEGIN)
    DOCS.write_text(before + _BEGIN + table_of(all_mutants().values()) + _END + rest.split(_END)[1])


if __name__ == "__main__":
    main()
