"""The catalog is a value: a change makes a new one, and the old one stays as it was."""

from __future__ import annotations

from dataclasses import replace

from millstream.planner.catalog import Catalog
from millstream.planner.schema import Schema
from millstream.planner.source_info import SourceInfo
from millstream.planner.specs import FormatSpec

A, B = (SourceInfo(name, "STREAM", name, Schema(()), FormatSpec("KAFKA"), FormatSpec("JSON")) for name in "AB")


def test_a_change_leaves_earlier_catalogs_as_they_were() -> None:
    empty = Catalog()
    one = empty.with_source(A)
    two = one.with_source(B)
    none = two.without_source("A").without_source("B")
    assert [list(each.sources) for each in (empty, one, two, none)] == [[], ["A"], ["A", "B"], []]
    assert none.without_source("A") == none


def test_a_replaced_source_keeps_its_place() -> None:
    changed = replace(A, topic="other")
    catalog = Catalog().with_source(A).with_source(B).with_source(changed)
    assert list(catalog.sources.items()) == [("A", changed), ("B", B)]
