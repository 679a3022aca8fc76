"""The page about functions in Python: all that it shows runs."""

from __future__ import annotations

import linecache
import re
import sys
import types

from repository import REPOSITORY

from millstream.testing import Sandbox

TEXT = (REPOSITORY / "docs" / "python-functions.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.M | re.S)


def test_the_statements_run_and_their_functions_compute() -> None:
    with Sandbox() as sandbox:
        for block in blocks("sql"):
            sandbox.execute(block)
        sandbox.execute(
            "CREATE STREAM shown AS SELECT id, hashtags(id) AS h, weekday(placed) AS d, log_amount(amount) AS l "
            "FROM orders;"
            "CREATE STREAM split AS SELECT id, words('A b') AS w FROM orders;"
            "INSERT INTO orders (id, amount, placed) VALUES ('#a', 1, '2024-05-01T00:00:00');"
            "INSERT INTO orders (id, amount) VALUES ('#a', 4);"
        )
        sandbox.drain()
        rows = {
            topic: [r["value"] for r in sandbox.consume(topic)] for topic in ("NET_ORDERS", "MEANS", "SHOWN", "SPLIT")
        }
    assert rows["NET_ORDERS"][0] == {"NET": 0.8}
    assert rows["MEANS"][-1] == {"MEAN": 2.0}
    assert rows["SHOWN"][0] == {"H": ["a"], "D": "Wednesday", "L": 0.0}
    assert rows["SPLIT"][:2] == [{"W": "a"}, {"W": "b"}]


def test_the_program_runs() -> None:
    (text,) = blocks("python")
    name = "<docs>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)  # where the decorators read it
    module = types.ModuleType("docs")
    sys.modules["docs"] = module
    try:
        exec(compile(text, name, "exec"), vars(module))
    finally:
        del sys.modules["docs"]
    assert module.with_tax(10.0) == 12.0
