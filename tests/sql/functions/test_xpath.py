"""XPath over XML in texts: the answers of Spark, and documents and paths that somebody made to do harm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from millstream.sql.functions.bounds import BoundExceeded, CallBounds, bounded_by
from millstream.sql.functions.udf import PythonFunction
from millstream.sql.functions.xpath import xml_functions
from millstream.sql.types import STRING

LETTERS = "<a><b>b1</b><b>b2</b><b>b3</b><c>c1</c><c>c2</c></a>"
NUMBERS = "<a><b>1</b><b>2.5</b><n>x</n><m> 7 </m><e/><big>99999999999</big><neg>-3.9</neg></a>"
SOAP = '<soap:Envelope xmlns:soap="urn:s"><soap:Body id="7"><v xmlns="urn:v">hi</v></soap:Body></soap:Envelope>'
MIXED = "<a><b id='1'>x<i>y</i>z</b><b id='2'/><!-- c --><![CDATA[<raw>]]>&lt;t&#65;</a>"

# (document, path) → what Spark 4.3 answers to xpath_string, xpath_boolean, xpath_int, xpath_long, xpath_double
NAN = math.nan
SPARK: dict[tuple[str, str], tuple[str, bool, int, int, float]] = {
    (LETTERS, "a/b/text()"): ("b1", True, 0, 0, NAN),
    (LETTERS, "a/nope"): ("", False, 0, 0, NAN),
    (LETTERS, "//b[2]/text()"): ("b2", True, 0, 0, NAN),
    (LETTERS, "count(a/b)"): ("3", True, 3, 3, 3.0),
    (LETTERS, "a"): ("b1b2b3c1c2", True, 0, 0, NAN),
    (LETTERS, "a/b = 'b3'"): ("true", True, 1, 1, 1.0),
    (LETTERS, "concat(a/b,'-',a/c)"): ("b1-c1", True, 0, 0, NAN),
    (LETTERS, "1+1"): ("2", True, 2, 2, 2.0),
    (LETTERS, "true()"): ("true", True, 1, 1, 1.0),
    (NUMBERS, "a/b"): ("1", True, 1, 1, 1.0),
    (NUMBERS, "sum(a/b)"): ("3.5", True, 3, 3, 3.5),
    (NUMBERS, "a/m"): (" 7 ", True, 7, 7, 7.0),
    (NUMBERS, "a/e"): ("", True, 0, 0, NAN),
    (NUMBERS, "a/big"): ("99999999999", True, 2147483647, 99999999999, 99999999999.0),
    (NUMBERS, "a/neg"): ("-3.9", True, -3, -3, -3.9),
    (NUMBERS, "1 div 0"): ("Infinity", True, 2147483647, 9223372036854775807, math.inf),
    (NUMBERS, "0 div 0"): ("NaN", False, 0, 0, NAN),
    (NUMBERS, "round(a/neg)"): ("-4", True, -4, -4, -4.0),
    (SOAP, "//v/text()"): ("hi", True, 0, 0, NAN),
    (SOAP, "//Body/@id"): ("7", True, 7, 7, 7.0),
    (SOAP, "//*[local-name()='Body']/@id"): ("7", True, 7, 7, 7.0),
    (SOAP, "//*[name()='soap:Body']/@id"): ("7", True, 7, 7, 7.0),
    (MIXED, "string(a)"): ("xyz<raw><tA", True, 0, 0, NAN),
    (MIXED, "a/b[@id=1]/i/text()"): ("y", True, 0, 0, NAN),
}
LISTS: dict[tuple[str, str], list[str]] = {  # as Spark's xpath answers
    (LETTERS, "a/*/text()"): ["b1", "b2", "b3", "c1", "c2"],
    (LETTERS, "a/b[position()>1]/text()"): ["b2", "b3"],
    (LETTERS, "a/b[.='b2']/text()"): ["b2"],
    (LETTERS, "a/nope"): [],
    (MIXED, "//@id"): ["1", "2"],
    (MIXED, "a/b[1]//text()"): ["x", "y", "z"],
    (MIXED, "a/comment()"): [" c "],
}
OURS: dict[tuple[str, str], list[str]] = {  # where Spark has NULLs for elements, and nothing for a prefix
    (LETTERS, "a/b"): ["b1", "b2", "b3"],
    (MIXED, "//i/.."): ["xyz"],
    (SOAP, "//soap:Body/@id"): ["7"],
    (SOAP, "//x:Body/@id"): [],
}
MEANINGS = {
    "substring('12345', 1.5, 2.6)": "234",
    "substring('12345', 0, 3)": "12",
    "substring('12345', 0 div 0)": "",
    "translate('bar', 'abc', 'AB')": "BAr",
    "normalize-space('  a  b ')": "a b",
    "-5 mod 2": "-1",
    "2 * 3 + 4 * 5 - 1": "25",
    "(//b)[2]": "b2",
    "//b[last()]": "b3",
    "//b[3]/preceding-sibling::b[1]": "b2",
    "//c[1]/preceding::b[1]": "b3",
    "count(//c/following::*)": "1",
    "count(//b | //c | //b)": "5",
    "a/*[self::b or self::c][4]": "c1",
    "//b[not(. = 'b1')][1]/following-sibling::*[1]": "b3",
    "name(/*)": "a",
    "div/mod": "",
    "count(//node())": "11",
}


def call(function: PythonFunction, *arguments: str) -> Any:
    assert function.row is not None
    return function.row((STRING,) * len(arguments), STRING)(*arguments)


@pytest.mark.parametrize(("document", "path"), SPARK)
def test_values_are_sparks(document: str, path: str) -> None:
    functions = ("xpath_string", "xpath_boolean", "xpath_int", "xpath_long", "xpath_double")
    found = [call(getattr(xml_functions, name), document, path) for name in functions]
    assert list(map(repr, found)) == list(map(repr, SPARK[document, path]))


@pytest.mark.parametrize(("document", "path"), [*LISTS, *OURS])
def test_nodes_come_as_texts_in_the_order_of_the_document(document: str, path: str) -> None:
    assert call(xml_functions.xpath, document, path) == {**LISTS, **OURS}[document, path]


@pytest.mark.parametrize("path", MEANINGS)
def test_paths_mean_what_the_standard_says(path: str) -> None:
    assert call(xml_functions.xpath_string, LETTERS, path) == MEANINGS[path]


NO_PATHS = ["", "a/b[", "a/", "f(a)", "concat('a')", "a/b]", "a b", "child::", "up::a", "1 +", "'x"]


@pytest.mark.parametrize("path", NO_PATHS)
def test_what_is_no_path_fails_for_its_row(path: str) -> None:
    with pytest.raises(ValueError, match=r"path|axis|unexpected|function"):
        call(xml_functions.xpath_string, LETTERS, path)


ENTITIES = (
    "<!DOCTYPE l [<!ENTITY a 'x'>"
    + "".join(f"<!ENTITY {chr(98 + i)} '{f'&{chr(97 + i)};' * 10}'>" for i in range(9))
    + "]><l>&j;</l>"
)
HOSTILE = {
    "a billion laughs": ENTITIES,
    "a file of the machine": "<!DOCTYPE l [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><l>&a;</l>",
    "attributes with defaults": f"<!DOCTYPE l [<!ATTLIST a x CDATA '{'x' * 1000}'>]><l>{'<a/>' * 1000}</l>",
    "a declaration of parameters": "<!DOCTYPE l [<!ENTITY % a SYSTEM 'http://127.0.0.1:1/'> %a;]><l/>",
    "deep nesting": "<a>" * 100_000 + "</a>" * 100_000,
    "no end": "<a>" * 900,
    "an unknown entity": "<a>&nobody;</a>",
    "two roots": "<a/><a/>",
    "nothing": "",
    "half of a character": "<a>\ud800</a>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_such_a_document_is_refused(name: str) -> None:
    with pytest.raises(Exception, match=r"declares|nested|no element|undefined|junk|surrogates"):
        call(xml_functions.xpath, HOSTILE[name], "/*")


def test_a_type_that_is_only_named_is_not_loaded() -> None:
    document = "<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a>1</a>"
    assert call(xml_functions.xpath, document, "a") == ["1"]
    assert call(xml_functions.xml_is_well_formed, document)
    assert not call(xml_functions.xml_is_well_formed, ENTITIES)


LONG: dict[str, Callable[[], tuple[str, str]]] = {
    "each node for each node": lambda: (f"<a>{'<b/>' * 3_000}</a>", "//*[count(//*[count(//*) > 1]) > 1]"),
    "siblings of siblings": lambda: (
        f"<a>{'<b/>' * 15_000}</a>",
        "count(//b/following-sibling::b/preceding-sibling::b)",
    ),
    "the texts of all that is nested": lambda: ("<a>x" * 900 + "</a>" * 900, "//*[. = //*[. = //*]]"),
    "more nodes than can be searched": lambda: (f"<a>{'<b/>' * 100_000}</a>", "a"),
}


@pytest.mark.parametrize("name", LONG)
def test_no_path_takes_longer_than_a_function_may(name: str) -> None:
    document, path = LONG[name]()
    late = r"millstream\.functions\.max\.seconds"
    with bounded_by(CallBounds(seconds=0.2)), pytest.raises(BoundExceeded, match=late):
        call(xml_functions.xpath_string, document, path)


def test_no_result_is_larger_than_a_value_may_be() -> None:
    document = f"<a>{'x' * 900}</a>"
    with bounded_by(CallBounds(value_bytes=1_000)):
        assert len(call(xml_functions.xpath_string, document, "a")) == 900
        with pytest.raises(BoundExceeded, match="1,800 bytes"):
            call(xml_functions.xpath_string, document, "concat(a, a)")


def test_brackets_within_brackets_end() -> None:
    with pytest.raises((ValueError, RecursionError)):
        call(xml_functions.xpath_string, LETTERS, "(" * 4_000 + "1" + ")" * 4_000)
