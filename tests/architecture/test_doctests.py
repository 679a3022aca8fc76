"""An example in a docstring is a test."""

from __future__ import annotations

import doctest
import importlib

from repository import module_name, source_files

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_examples_in_the_docstrings_hold() -> None:
    with_examples = [path for path in source_files() if ">>> " in path.read_text(encoding="utf-8")]
    failed = {
        name: result.failed
        for name in map(module_name, with_examples)
        if (result := doctest.testmod(importlib.import_module(name), optionflags=FLAGS)).failed
    }
    assert failed == {}, "doctest printed the differences above"
