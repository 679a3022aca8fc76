"""Functions that users write: their texts are read in every form, values go both ways, a bad row is NULL and noted."""

from __future__ import annotations

import datetime as dt
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal as Exact
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.sql.functions.aggregation.aggregate_kernels import GroupEvents
from millstream.sql.functions.aggregation.aggregates import AGGREGATES
from millstream.sql.functions.bounds import CallBounds
from millstream.sql.functions.failures import Failures, collecting
from millstream.sql.functions.signature import parse_type
from millstream.sql.functions.users.python_body import Body, BodyError, load
from millstream.sql.functions.users.python_values import reader, writer
from millstream.sql.functions.users.user_calls import table_or_scalar_columns
from millstream.sql.functions.users.user_functions import UserFunction, UserParameter
from millstream.sql.types import BIGINT, DOUBLE, STRING


def scalar(body: str, *, types: tuple[str, ...] = ("BIGINT",), returns: str = "BIGINT", **options: Any) -> UserFunction:
    parameters = tuple(UserParameter(name, parse_type(type_)) for name, type_ in zip("abcd", types, strict=False))
    return UserFunction("F", options.pop("kind", "scalar"), parameters, parse_type(returns), body, **options)


def results(function: UserFunction, *columns: list[Any]) -> tuple[list[Any], list[str]]:
    """The results of a call, and what failed."""
    failures = Failures()
    arrays = [pa.array(c, p.type.arrow) for c, p in zip(columns, function.parameters, strict=True)]
    with collecting(failures):
        found = table_or_scalar_columns(function)(*arrays)
    return found.to_pylist(), [failure.message for failure in failures.take()]


@pytest.mark.parametrize(
    "body",
    [
        "a + 1",
        " return a + 1 ",
        "\n    import math\n    if a > 0:\n        return a + 1\n    return math.ceil(a + 0.5)\n  ",
        "\ndef f(x):\n    return x + 1\n",
        "\nSTEP = 1\ndef step(): return STEP\ndef F(x, y=0): return x + step()\n",
        "def helper(x):\n    return x + 1\nreturn helper(a)",
    ],
    ids=["expression", "one line", "body", "function", "module", "helper"],
)
def test_a_text_may_be_an_expression_a_body_or_a_module(body: str) -> None:
    assert results(scalar(body), [1, 5]) == ([2, 6], [])


@pytest.mark.parametrize(
    ("body", "message", "at"),
    [
        ("\n  x = 1\n  return a + + * b\n", "not valid Python", "*"),
        ("\n  x = 1\n  return amont + x\n", '"amont" is not defined', "amont"),
        ("return 'ä' + amont", '"amont" is not defined', "amont"),
        ("import nonsense_module\ndef f(a): return 1", "No module named", "import nonsense_module"),
        ("x = 1", "never returns", None),
        ("  ", "empty", None),
        ("\ndef g(a): return 1\n", 'defines the function "g"', "def"),
        ("\ndef f(a, b, c): return 1\n", "takes 3 arguments, but SQL names 1", "def"),
        ("\nasync def f(a): return 1\n", "async", "async"),
    ],
)
def test_what_is_wrong_with_a_text_is_said_with_its_place(body: str, message: str, at: str | None) -> None:
    with pytest.raises(BodyError) as caught:
        load(scalar(body).python)
    assert message in caught.value.message
    if at is not None:
        assert caught.value.offset is not None
        assert body[caught.value.offset :].startswith(at)


def test_a_class_without_its_methods_is_refused() -> None:
    for text in ("1", "class G:\n  def init(self): return 0", "class G:\n  def init(self, x): return 0\n"):
        with pytest.raises(BodyError):
            load(Body("G", "aggregate", ("a",), text))


@pytest.mark.parametrize(
    ("type_", "value", "python"),
    [
        ("INTEGER", 7, 7),
        ("DECIMAL(6, 2)", Exact("1.50"), Exact("1.50")),
        ("TIMESTAMP", dt.datetime(2024, 5, 1, 12), dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)),
        ("DATE", dt.date(2024, 5, 1), dt.date(2024, 5, 1)),
        ("TIME", dt.time(12, 30), dt.time(12, 30)),
        ("BYTES", b"\x00\xff", b"\x00\xff"),
        ("ARRAY<DATE>", [dt.date(2024, 5, 1), None], [dt.date(2024, 5, 1), None]),
        ("MAP<STRING, TIME>", [("a", dt.time(1))], {"a": dt.time(1)}),
        ("STRUCT<`X` INTEGER, `y` DATE>", {"X": 1, "y": None}, {"X": 1, "y": None}),
    ],
)
def test_a_value_comes_to_python_and_goes_back(type_: str, value: Any, python: Any) -> None:
    seen: list[Any] = []
    function = scalar("a", types=(type_,), returns=type_)
    load(Body("F", "scalar", ("a",), "a"))
    assert results(function, [value]) == ([value], [])
    shown = scalar("repr(a)", types=(type_,), returns="STRING")
    seen += results(shown, [value])[0]
    assert seen == [repr(python)]


@pytest.mark.parametrize(
    ("returns", "given"),
    [
        ("BIGINT", "'7'"), ("BIGINT", "2 ** 64"), ("BIGINT", "1.5"), ("BOOLEAN", "1"), ("STRING", "a"),
        ("DOUBLE", "'x'"), ("DATE", "a"), ("DECIMAL(3, 1)", "1000"), ("ARRAY<BIGINT>", "'text'"),
        ("STRUCT<`X` BIGINT>", "{'Z': 1}"), ("MAP<STRING, BIGINT>", "[1]"), ("TIMESTAMP", "'2024-01-01'"),
        ("STRING", "'\\ud800'"), ("STRUCT<`X` STRING>", "{'X': '\\ud800'}"), ("MAP<STRING, BIGINT>", "{'\\ud800': 1}"),
        ("MAP<STRING, BIGINT>", "{None: 1}"), ("TIMESTAMP", "__import__('pandas').NaT"),
        ("DECIMAL(3, 1)", "10 ** 100"), ("DECIMAL(3, 1)", "__import__('fractions').Fraction(1, 3)"),
        ("DECIMAL(3, 1)", "True"),
    ],
)  # fmt: skip
def test_a_result_of_another_type_is_null_and_noted(returns: str, given: str) -> None:
    values, failed = results(scalar(given, returns=returns), [1])
    assert values == [None]
    assert "it returned" in failed[0]


def test_a_failing_row_is_null_and_the_others_have_their_results() -> None:
    values, failed = results(scalar("\n\n10 // a"), [5, 0, 2])
    assert values == [2, None, 5]
    assert failed == ["function F failed: ZeroDivisionError: integer division or modulo by zero, in line 3 of its text"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("raise ValueError('\\ud800')", r"ValueError: \ud800"),
        ("raise ValueError('x' * 5_000_000)", "ValueError: " + "x" * 2000 + "…"),
        ("class Mute(Exception):\n  def __str__(self): return 1 // 0\nraise Mute()", "Mute: its text cannot be read"),
    ],
)
def test_an_error_says_what_can_be_stored_whatever_its_text_is(text: str, shown: str) -> None:
    values, failed = results(scalar(f"if a == 1: return 1\n{text}"), [1, 2])
    assert values == [1, None]
    assert failed[0].startswith(f"function F failed: {shown}")
    failed[0].encode()


def test_of_many_failures_the_first_ones_are_kept_and_the_others_counted() -> None:
    failed = results(scalar("1 // 0"), list(range(1000)))[1]
    assert len(failed) == 101
    assert failed[-1] == "900 more rows for which an expression failed"


def test_null_gives_null_unless_the_function_wants_to_see_it() -> None:
    assert results(scalar("a + b", types=("BIGINT", "BIGINT")), [1, None, 3], [1, 2, None])[0] == [2, None, None]
    assert results(scalar("a or 0", called_on_null=True), [1, None])[0] == [1, 0]


def test_a_vectorized_function_takes_columns_and_a_bad_row_is_found() -> None:
    body = "import pyarrow.compute as pc\ndef f(a):\n  return pc.divide(12, a)"
    function = scalar(body, vectorized=True)
    assert results(function, [1, 2, None, 3]) == ([12, 6, None, 4], [])
    values, failed = results(function, [1, 0, 3, 4, 0])
    assert values == [12, None, 4, 3, None]
    assert len(failed) == 2
    assert results(scalar("a.to_pandas() * 2", vectorized=True), [1, 2])[0] == [2, 4]
    values, failed = results(scalar("a[:1]", vectorized=True), [1, 2])
    assert values == [None, None]
    assert "1 values for 2 rows" in failed[0]


def test_a_table_function_returns_or_yields_a_list() -> None:
    for body in ("list(a)", "for each in a: yield each"):
        function = scalar(body, types=("STRING",), returns="STRING", kind="table")
        assert results(function, ["ab", "", None])[0] == [["a", "b"], [], None]


MEAN = """
class Mean:
    def init(self): return {"sum": 0.0, "n": 0}
    def add(self, state, x):
        state["sum"] += x
        state["n"] += 1
        return state
    def undo(self, state, x): return {"sum": state["sum"] - x, "n": state["n"] - 1}
    def merge(self, a, b): return {"sum": a["sum"] + b["sum"], "n": a["n"] + b["n"]}
    def result(self, state): return state["sum"] / state["n"]
"""


@pytest.mark.parametrize("state", [None, "STRUCT<`sum` DOUBLE, `n` BIGINT>"])
def test_an_aggregate_adds_undoes_and_merges(state: str | None) -> None:
    kept = None if state is None else parse_type(state)
    function = UserFunction("MEAN", "aggregate", (UserParameter("x", DOUBLE),), DOUBLE, MEAN, state=kept)
    function.entry()
    fold = AGGREGATES[function.id].fold([BIGINT])
    first = fold.add(fold.initial, 4.0)
    second = fold.add(first, 8.0)
    assert fold.result(first) == 4.0, "a state is never changed in place"
    assert fold.result(second) == 6.0
    assert fold.undo is not None
    assert fold.result(fold.undo(second, 4.0)) == 8.0
    assert fold.result(fold.merge(second, first)) == pytest.approx(16 / 3)
    assert fold.add(first, None) == first, "a row with NULL is left out"
    stored = fold.columns_of([first, fold.initial])
    assert fold.states_of(stored, [True, True]) == [first, fold.initial]


HALF_A_PAIR = """
class HalfAPair:
    def init(self): return {"text": ""}
    def add(self, state, x): return {"text": "\\ud800" if x == 2 else "é"}
    def result(self, state): return state["text"]
"""


@pytest.mark.parametrize("state", [None, "STRUCT<`text` STRING>"])
def test_half_of_a_surrogate_pair_fails_a_row_of_an_aggregate_and_no_more(state: str | None) -> None:
    kept = None if state is None else parse_type(state)
    function = UserFunction("HALF", "aggregate", (UserParameter("x", BIGINT),), STRING, HALF_A_PAIR, state=kept)
    function.entry()
    fold = AGGREGATES[function.id].fold([BIGINT])
    failures = Failures()
    with collecting(failures):
        first = fold.add(fold.initial, 1)
        second = fold.add(first, 2)
        assert fold.states_of(fold.columns_of([first, second]), [True, True]) == [first, second]
        assert [fold.result(first), fold.result(second)] == ["é", None if state is None else "é"]
    (failure,) = failures.take()
    assert "surrogate pair" in failure.message


def test_an_aggregate_that_fails_keeps_its_state() -> None:
    text = MEAN.replace('state["sum"] += x', 'state["sum"] += 1 / x')
    function = UserFunction("MEAN", "aggregate", (UserParameter("x", DOUBLE),), DOUBLE, text)
    function.entry()
    fold = AGGREGATES[function.id].fold([DOUBLE])
    failures = Failures()
    with collecting(failures):
        state = fold.add(fold.add(fold.initial, 2.0), 0.0)
        assert fold.result(state) == 0.5
        assert fold.result(fold.initial) is None
    assert len(failures.take()) == 2


HANGING = """
import threading
class Hanging:
    def init(self): return 0
    def add(self, state, x):
        if x < 0:
            HANG
        return state + x
    def merge(self, a, b):
        HANG
    def result(self, state):
        if state > 100:
            HANG
        return state
"""


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An event that users' functions import, and wait for until the test is over. Earlier threads sleep on."""
    before = set(threading.enumerate())
    module = ModuleType("happens_after_the_test")
    event = threading.Event()
    vars(module)["event"] = event
    monkeypatch.setitem(sys.modules, module.__name__, module)
    yield event
    event.set()
    for thread in set(threading.enumerate()) - before:
        if thread.name == "user-function":
            thread.join(60)


@pytest.mark.parametrize("hang", ["from happens_after_the_test import event; event.wait(600)", "while True: pass"])
def test_an_aggregate_that_does_not_come_back_is_left_and_its_state_is_as_before(
    hang: str, never: threading.Event
) -> None:
    parameters = (UserParameter("x", BIGINT),)
    function = UserFunction("HANGING", "aggregate", parameters, BIGINT, HANGING.replace("HANG", hang))
    function.entry()
    fold = AGGREGATES[function.id].fold([BIGINT])
    failures = Failures(bounds=CallBounds(seconds=1))
    with collecting(failures):
        events = GroupEvents(np.array([0, 1, 0, 0, 1]), np.full(5, -1), np.arange(5))
        state = fold.columns_of([fold.initial] * 2)
        results, state = fold.run(events, [pa.array([1, 7, -1, 2, 100])], state, [False] * 2)
        assert results.to_pylist() == [1, 7, 1, 3, None]
        one, two = fold.states_of(state, [True] * 2)
        assert fold.merge(one, two) == one
    messages = [failure.message for failure in failures.take()]
    assert len(messages) == 3
    assert all("took longer for this row" in message for message in messages)
    if "wait" in hang:
        assert not never.is_set()
        assert "user-function" in [thread.name for thread in threading.enumerate()], "nobody waits for what sleeps"


@pytest.mark.parametrize("kind", ["scalar", "table", "aggregate"])
def test_a_stored_text_that_this_python_cannot_read_fails_rows_only(kind: str) -> None:
    function = scalar("match a with:", kind=kind)
    entry = function.entry()
    assert entry.name == "F"
    if kind == "scalar":
        values, failed = results(function, [1, 2])
        assert values == [None, None]
        assert "not valid Python" in failed[0]


def test_another_text_is_another_function() -> None:
    one, two = scalar("a + 1"), scalar("a + 2")
    assert one.id != two.id
    assert scalar("a + 1").id == one.id
    assert one.id.startswith("USER_F_")


def test_times_have_readers_and_plain_values_have_none() -> None:
    assert reader(BIGINT) is None
    assert reader(parse_type("ARRAY<STRING>")) is None
    assert writer(STRING)(None) is None
