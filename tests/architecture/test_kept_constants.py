"""A file of tests that leaves a constant changed is told so."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from kept_constants import KeptConstants


def test_a_constant_that_two_patches_take_back_in_the_wrong_order_is_found_and_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("some_package.inner")
    vars(module).update(_ROWS=100, LIMIT="a", lower=1)
    monkeypatch.setitem(sys.modules, "some_package.inner", module)
    kept = KeptConstants("some_package")
    inner, outer = pytest.MonkeyPatch(), pytest.MonkeyPatch()
    outer.setattr(module, "_ROWS", 1)
    inner.setattr(module, "_ROWS", 2)
    inner.setattr(module, "lower", 2)
    outer.undo()
    inner.undo()
    assert vars(module)["_ROWS"] == 1
    assert kept.changed() == ["some_package.inner._ROWS"]
    assert vars(module)["_ROWS"] == 100
    assert kept.changed() == []


def test_a_module_that_was_loaded_again_has_the_constants_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("some_package.inner")
    vars(module)["_HOMES"] = {"a": 1}
    monkeypatch.setitem(sys.modules, "some_package.inner", module)
    kept = KeptConstants("some_package")
    vars(module)["_HOMES"] = {"a": 1}
    assert kept.changed() == []
    vars(module)["_HOMES"] = {"a": 2}
    assert kept.changed() == ["some_package.inner._HOMES"]
