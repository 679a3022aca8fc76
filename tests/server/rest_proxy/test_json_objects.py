"""Objects are found in a stream however it is cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.server.rest_proxy.json_objects import ObjectSplitter

values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab"\\{}[] é\n'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='a"\\{}'), inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.text(alphabet='ab"\\{}'), values, max_size=3)


@given(st.lists(objects, max_size=5), st.sampled_from(["", " ", "\r\n", "\t\n "]), st.data())
def test_objects_are_found_however_the_stream_is_cut(given: list[object], between: str, data: st.DataObject) -> None:
    texts = [json.dumps(each, ensure_ascii=False).encode() for each in given]
    stream = between.encode().join([b"", *texts, b""])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    splitter, found = ObjectSplitter(10_000), list[bytes]()
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        more, problem = splitter.feed(stream[begin:end])
        found += more
        assert problem is None
    assert found == texts
    assert splitter.is_between


@pytest.mark.parametrize("text", [b"[", b"1", b'"a"', b"}", b",", b"\x00", b'{"a":1},{"b":2}'])
def test_what_is_no_object_is_a_problem_behind_the_objects_before_it(text: bytes) -> None:
    found, problem = ObjectSplitter(100).feed(text)
    assert found == ([b'{"a":1}'] if text.startswith(b"{") else [])
    assert problem is not None and problem.number == 400


def test_an_object_may_be_as_large_as_allowed_and_no_larger() -> None:
    fits = b'{"a":"' + b"x" * 92 + b'"}'
    assert len(fits) == 100
    assert ObjectSplitter(100).feed(fits) == ([fits], None)
    for text in (b'{"a":"' + b"x" * 93 + b'"}', b'{"a":"' + b"x" * 95):
        found, problem = ObjectSplitter(100).feed(fits + text)
        assert (found, problem is not None and problem.number) == ([fits], 413)


def test_an_object_that_has_not_ended_is_seen() -> None:
    splitter = ObjectSplitter(100)
    assert splitter.feed(b'  {"a"') == ([], None)
    assert not splitter.is_between
    assert splitter.feed(b":1}  ") == ([b'{"a":1}'], None)
    assert splitter.is_between
