"""docs/functions.md says what the catalog of functions has."""

from __future__ import annotations

from scripts import function_reference


def test_the_function_reference_is_up_to_date() -> None:
    written = function_reference.PAGE.read_text(encoding="utf-8")
    assert written == function_reference.page(), "run: python scripts/function_reference.py"
