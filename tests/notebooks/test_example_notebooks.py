"""The notebooks that people start with do, in a kernel of their own, what their text says."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from kernels import run_notebook
from postgres_server import postgres_server
from repository import REPOSITORY

pytestmark = pytest.mark.timeout(600)  # a kernel, an engine, compiled loops

FOLDER = REPOSITORY / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def test_first_steps(tmp_path: Path) -> None:
    ran = run_notebook(FOLDER / "first-steps.ipynb", tmp_path, "live.status.state, chart.status.state")
    assert ran.text("insert") == "6"
    assert ran.text("ask").split() == ["TEA", "PRICE", "sencha", "4.20", "mint", "3.10", "assam", "3.80"]
    assert "DECIMAL(5, 2)" in ran.html("ask") and "<td" in ran.html("ask")
    assert [line.split() for line in ran.text("frame").splitlines()[2:]] == [
        ["Ada", "3", "11.10"],
        ["Bo", "2", "8.00"],
        ["Cy", "1", "4.20"],
    ]
    assert "('oolong', 1, Decimal('5.00'))" in ran.text("more") and "('mint', 2, Decimal('6.20'))" in ran.text("more")
    assert ast.literal_eval(ran.text("chart-wait")) == {"assam": 2, "mint": 2, "oolong": 1, "sencha": 3}
    assert ran.text("wrong").splitlines() == [
        "error: WHERE column 'EARND' cannot be resolved.",
        "  4 | WHERE earnd > 5;",
        "    |       ^^^^^",
        'hint: Did you mean "EARNED"?',
    ]
    assert "1 partition" in ran.html("look") and "SOURCE STREAM CUPS" in ran.html("look")
    assert [column["name"] for column in ran.widget("live")["_columns"]] == ["TEA", "CUPS", "EARNED"]
    assert ran.text(-1) == "('running', 'running')", "who runs all cells finds live widgets"
    assert (ran.widget("chart")["_axes"]["kind"], ran.widget("chart")["_axes"]["title"]) == ("bar", "Cups sold")


def test_windows_and_late_data(tmp_path: Path) -> None:
    ran = run_notebook(FOLDER / "windows-and-late-data.ipynb", tmp_path)
    minutes = {"08:00": 6, "08:01": 7, "08:02": 11, "08:03": 3, "08:04": 8}
    assert ast.literal_eval(ran.text("first")) == minutes
    assert ast.literal_eval(ran.text("late")) == minutes | {"08:02": 21}
    assert ast.literal_eval(ran.text("too-late")) == minutes | {"08:02": 21, "08:05": 1}
    assert ran.text("history").split()[2:6] == ["08:00", "106", "08:01", "7"]
    assert ast.literal_eval(ran.text("final-wait")) == [
        ("08:00", "north", 6),
        ("08:01", "north", 7),
        ("08:02", "north", 21),
    ]
    assert [cars for _, _, cars in ast.literal_eval(ran.text("next"))] == [6, 7, 21, 3, 8, 1]
    assert [line.split()[3] for line in ran.text("session").splitlines()[1:]] == ["4", "4", "1", "1", "1"]
    assert ran.widget("chart")["_axes"]["x"] == "WINDOWSTART"


def test_enriching_a_stream(tmp_path: Path) -> None:
    ran = run_notebook(FOLDER / "enriching-a-stream.ipynb", tmp_path)
    assert ran.text("stations").split()[3:] == [
        *("1", "Harbour", "South"),
        *("2", "Old", "Town", "Centre"),
        *("3", "University", "North"),
    ]
    assert "(None, None, 4, 15, Decimal('1.00'))" in ran.text("first")
    assert ran.text("first").count("'Harbour'") == 3 and "Harbour East" in ran.text("second")
    assert [line.split() for line in ran.text("history").splitlines()[1:]] == [
        ["South", "4", "121", "8.10"],
        ["Centre", "2", "65", "3.50"],
        ["North", "1", "33", "1.30"],
        ["West", "1", "25", "1.00"],
    ]
    assert [line.split()[0] for line in ran.text("period").splitlines()[1:]] == ["08:04", "08:15", "08:55"]
    assert ran.text("bike-frame").splitlines()[-1].split()[2:] == ["Harbour", "East", "Old", "Town"]
    assert ast.literal_eval(ran.text("chart-wait")) == {4: 85, 8: 33, 17: 72, 23: 69}
    assert ran.text("stands").splitlines()[1].split() == ["17", "Harbour", "East"]
    (picture,) = [output.data["image/svg+xml"] for output in ran.outputs("graph")]
    assert all(name in picture for name in ("STATIONS", "TRIPS", "RIDES", "BIKES"))


def test_from_a_database_to_a_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres_server() as server:
        place = server.parameters()
        address = f"dbname={place['database.dbname']} user={place['database.user']}"
        monkeypatch.setenv("SHOP_DATABASE", f"host=127.0.0.1 port={server.port} {address}")
        ran = run_notebook(FOLDER / "from-a-database-to-a-lake.ipynb", tmp_path)
    bought = [("Ada", "radio", "12.50"), ("Ada", "spring", "12.50"), ("Bo", "radio", "80.00")]
    assert re.findall(r"'(\w+)', '(\w+)', Decimal\('(.*?)'\)", ran.text("sell")) == bought
    assert [line.split()[1:4] for line in ran.text("read").splitlines()[1:]] == [
        ["Ada", "spring", "12.50"],
        ["Ada", "radio", "12.50"],
        ["Bo", "radio", "80.00"],
    ]
    assert ran.text("earned").splitlines()[1:3] == ["spring    12.50", "radio     92.50"]
    assert ran.text("more").splitlines()[1:3] == ["spring    52.50", "radio     92.50"]
    assert ran.text("last") == "('Eve', 'spring', Decimal('40.00'))"
    assert ast.literal_eval(ran.text("chart-wait")) == {"radio": [92.5], "spring": [12.5, 40.0]}
    assert ran.text("gone") == "(0,)"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_stored_without_what_a_run_leaves_in_them(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    notebook = json.loads(text)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code), "clear all outputs"
    assert all(cell["metadata"] in ({}, {"tags": ["raises-exception"]}) for cell in notebook["cells"])
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    assert notebook["metadata"]["language_info"] == {"name": "python"}
    assert text == json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def test_every_notebook_is_run_here() -> None:
    assert NOTEBOOKS == [
        "enriching-a-stream.ipynb",
        "first-steps.ipynb",
        "from-a-database-to-a-lake.ipynb",
        "windows-and-late-data.ipynb",
    ]
