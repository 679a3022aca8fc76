"""What several runs come to: one line of JSON per run in a file, and sums per version of the code that was run."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_CODE: Final = ("logcore", "server", "millstream")

_STUCK: Final = "stuck clients"

Line = Mapping[str, Any]


def code_hash() -> str:
    """Of what a node runs, so that runs of different code are not added up unnoticed."""
    digest = hashlib.sha256()
    for file in sorted(file for folder in _CODE for file in (_REPOSITORY / folder).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def counts_of(folder: Path) -> dict[str, int]:
    """What a run counted; nothing where it did not come so far."""
    counts = folder / "counts.json"
    return json.loads(counts.read_text()) if counts.exists() else {}


def warning(counts: Mapping[str, int]) -> str:
    """A line about what is no anomaly, but has to be looked at; empty where there is nothing."""
    stuck = counts.get(_STUCK, 0)
    return f"!!! {_STUCK}: {stuck} did not come back from a call, and were killed: see kill_stuck\n" if stuck else ""


def summary(lines: Iterable[Line]) -> str:
    """A line per version of the code, and what was run."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        total = sums[f"{line['servers']} {line['code']}"]
        total.update(runs=1, failed=int(line["exit"] != 0), seconds=line["seconds"], faults_s=int(line["faults_s"]))
        total.update({f"- {name}": count for name, count in line["counts"].items()})
    return "\n".join(_shown(version, total) for version, total in sums.items())


def _shown(version: str, total: Counter[str]) -> str:
    counts = {name.removeprefix("- "): count for name, count in sorted(total.items()) if name.startswith("- ")}
    return (
        f"{version}: {total['runs']} runs, {total['failed']} with anomalies; {total['seconds']} s, "
        f"{total['faults_s']} s of them under faults; {counts}\n{warning(counts)}".rstrip()
    )
