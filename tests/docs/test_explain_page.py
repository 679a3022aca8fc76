"""The examples of docs/explain.md give what stands under them, but for times, rates and sizes."""

from __future__ import annotations

import re
from pathlib import Path

from waiting import eventually

from millstream.repl.text.entity_text import entity_lines
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session

PAGE = Path(__file__).parents[2] / "docs" / "explain.md"
FENCE = re.compile(r"^```(sql|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MEASURED = re.compile(r"\([\d.]+/s\)|busy \d+ ms|[\d.]+ (?:B|KiB)\b|read at \S+Z| +")


def test_the_examples_give_what_stands_under_them(tmp_path: Path) -> None:
    answer = ""
    with open_engine(tmp_path, {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}) as engine:
        for kind, block in FENCE.findall(PAGE.read_text(encoding="utf-8")):
            if kind == "text":
                lines = [line for line in block.splitlines() if not line.startswith("---")]
                assert [stable(line) for line in lines] == [stable(line) for line in told(answer, block)]
                continue
            eventually(lambda: idle(engine))
            entities = engine.execute(block, Session())
            answer = "\n".join(line for entity in entities for line in entity_lines(entity.as_json(), None))


def told(answer: str, block: str) -> list[str]:
    """Of EXPLAIN the plan only, which begins with its sink."""
    lines = [line for line in answer.splitlines() if not line.startswith("---")]
    first = block.partition("\n")[0]
    while first.startswith("SINK") and not lines[0].startswith("SINK"):
        lines.pop(0)
    return lines


def stable(line: str) -> str:
    return MEASURED.sub(" ", line).strip()


def idle(engine: EmbeddedEngine) -> bool:
    statuses = [engine.executor.status(query_id) for query_id in engine.catalog.queries]
    return all(status.positions and not any(status.lag.values()) for status in statuses)
