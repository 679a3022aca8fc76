"""Functions about XML in texts, with the names and answers of Spark's. A text that is no XML gives NULL."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from xml.parsers import expat

from ..bounds import count_bytes
from ..function import Function, scalar
from ..udf import by_row
from .xml_document import read_document
from .xpath_evaluation import XPathEvaluation, XPathValue
from .xpath_text import parsed_path

T = TypeVar("T")

xml_function = partial(scalar, category="XML")


@by_row
def xml_is_well_formed(text: str) -> bool:
    try:
        read_document(text)
    except (expat.ExpatError, ValueError):
        return False
    return True


def _evaluated(text: str, path: str, use: Callable[[XPathEvaluation, XPathValue], T]) -> T:
    parsed = parsed_path(path)
    evaluation = XPathEvaluation(read_document(text))
    return use(evaluation, evaluation.value(parsed))


@by_row
def xpath(text: str, path: str) -> list[str]:
    return _evaluated(text, path, _texts)


def _texts(evaluation: XPathEvaluation, value: XPathValue) -> list[str]:
    texts: list[str] = []
    for node in evaluation.nodes_of(value):
        texts.append(evaluation.text(node))
        count_bytes(len(texts[-1]))
    return texts


@by_row
def xpath_string(text: str, path: str) -> str:
    found = _evaluated(text, path, XPathEvaluation.string)
    count_bytes(len(found))
    return found


@by_row
def xpath_boolean(text: str, path: str) -> bool:
    return _evaluated(text, path, XPathEvaluation.boolean)


@by_row
def xpath_double(text: str, path: str) -> float:
    return _evaluated(text, path, XPathEvaluation.number)


@by_row
def xpath_int(text: str, path: str) -> int:
    return _whole(_evaluated(text, path, XPathEvaluation.number), 31)


@by_row
def xpath_long(text: str, path: str) -> int:
    return _whole(_evaluated(text, path, XPathEvaluation.number), 63)


def _whole(number: float, bits: int) -> int:
    """As Java turns a double into an integer."""
    if math.isnan(number):
        return 0
    low, high = -(1 << bits), (1 << bits) - 1
    return low if number <= low else high if number >= high else int(number)


_SIGNATURE = "(xml STRING, path STRING) -> {}"


FUNCTIONS: tuple[Function, ...] = (
    xml_function(
        "XML_IS_WELL_FORMED",
        signature="(text STRING) -> BOOLEAN",
        doc="Whether the text is an XML document for the other functions: they refuse documents that declare entities.",
        python=xml_is_well_formed,
        examples={
            "XML_IS_WELL_FORMED('<a><b/></a>')": "true",
            "XML_IS_WELL_FORMED('<a><b></a>')": "false",
            "XML_IS_WELL_FORMED(NULL)": "NULL",
        },
    ),
    xml_function(
        "XPATH",
        signature=_SIGNATURE.format("ARRAY<STRING>"),
        doc=(
            "The texts of all nodes at a path (XPath 1.0) in an XML document. A name without a prefix stands for that "
            "name under every prefix. NULL for a text that is no XML, for a document that declares entities, for "
            "elements nested deeper than 1,000, and for a path that is none or gives no nodes but a value."
        ),
        python=xpath,
        examples={
            "XPATH('<a><b>b1</b><b>b2</b></a>', 'a/b/text()')": "ARRAY['b1', 'b2']",
            "XPATH('<s:a xmlns:s=\"urn:s\"><s:b id=\"7\"/></s:a>', '//b/@id')": "ARRAY['7']",
            "XPATH('<a>', 'a')": "NULL",
            "XPATH(NULL, 'a')": "NULL",
        },
    ),
    xml_function(
        "XPATH_BOOLEAN",
        signature=_SIGNATURE.format("BOOLEAN"),
        doc="Whether there is a node at the path, or the condition that it is holds.",
        python=xpath_boolean,
        examples={
            "XPATH_BOOLEAN('<a><b>1</b></a>', 'a/b = 1')": "true",
            "XPATH_BOOLEAN('<a><b>1</b></a>', 'a/c')": "false",
            "XPATH_BOOLEAN(NULL, 'a')": "NULL",
        },
    ),
    xml_function(
        "XPATH_DOUBLE",
        signature=_SIGNATURE.format("DOUBLE"),
        doc="The number at the path, or the one that the path computes; NaN if there is none.",
        python=xpath_double,
        examples={
            "XPATH_DOUBLE('<a><b>1</b><b>2.5</b></a>', 'sum(a/b)')": "3.5E0",
            "XPATH_DOUBLE(NULL, 'a')": "NULL",
        },
    ),
    xml_function(
        "XPATH_INT",
        signature=_SIGNATURE.format("INTEGER"),
        doc="As XPATH_DOUBLE, without what follows the point; 0 if there is no number.",
        python=xpath_int,
        examples={
            "XPATH_INT('<a><b>1</b><b>2.5</b></a>', 'sum(a/b)')": "3",
            "XPATH_INT('<a/>', 'a/b')": "0",
            "XPATH_INT(NULL, 'a')": "NULL",
        },
    ),
    xml_function(
        "XPATH_LONG",
        signature=_SIGNATURE.format("BIGINT"),
        doc="As XPATH_INT, as a BIGINT.",
        python=xpath_long,
        examples={
            "XPATH_LONG('<a>99999999999</a>', 'a')": "99999999999",
            "XPATH_LONG(NULL, 'a')": "NULL",
        },
    ),
    xml_function(
        "XPATH_STRING",
        signature=_SIGNATURE.format("STRING"),
        doc="The text of the first node at the path, or what the path computes; empty if there is no node.",
        python=xpath_string,
        examples={
            "XPATH_STRING('<a><b>b1</b><b>b2</b></a>', 'a/b[2]')": "'b2'",
            "XPATH_STRING('<a/>', 'a/b')": "''",
            "XPATH_STRING('<a>', 'a')": "NULL",
            "XPATH_STRING(NULL, 'a')": "NULL",
        },
    ),
)
