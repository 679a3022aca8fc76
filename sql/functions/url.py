"""Functions about URLs."""

from __future__ import annotations

import re
from functools import partial
from urllib.parse import quote_plus, unquote_plus

from .function import Function, scalar
from .java.java_uri import parse_uri
from .udf import PythonFunction, by_row

url_function = partial(scalar, category="URL")


def url_protocol(url: str) -> str | None:
    return parse_uri(url).scheme


def url_host(url: str) -> str | None:
    return parse_uri(url).host


def url_port(url: str) -> int | None:
    return parse_uri(url).port


def url_path(url: str) -> str | None:
    return parse_uri(url).path


def url_query(url: str) -> str | None:
    return parse_uri(url).query


def url_fragment(url: str) -> str | None:
    return parse_uri(url).fragment


@by_row
def url_parameter(url: str, name: str) -> str | None:
    for parameter in (parse_uri(url).query or "").split("&"):
        key, equals, value = parameter.partition("=")
        if key == name and (equals or key):
            return value
    return None


@by_row
def url_encode(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


@by_row
def url_decode(text: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise ValueError("a % needs two digits")
    return unquote_plus(text, errors="replace")


def _part(part: str, function: PythonFunction, type_: str, doc: str, examples: dict[str, str]) -> Function:
    name = f"url_extract_{part}"
    return url_function(
        name,
        signature=f"(url STRING) -> {type_}",
        doc=f"{doc} NULL if there is none, or if `url` is not a URL.",
        python=function,
        examples={**examples, f"{name.upper()}(NULL)": "NULL"},
    )


FUNCTIONS: tuple[Function, ...] = (
    url_function(
        "url_decode_param",
        signature="(text STRING) -> STRING",
        doc="What URL_ENCODE_PARAM encoded: escapes become characters, and + a space.",
        python=url_decode,
        examples={"URL_DECODE_PARAM('url%20encoded+text')": "'url encoded text'", "URL_DECODE_PARAM(NULL)": "NULL"},
    ),
    url_function(
        "url_encode_param",
        signature="(text STRING) -> STRING",
        doc="The text as a parameter in a URL's query: a space becomes +, other reserved characters are escaped.",
        python=url_encode,
        examples={"URL_ENCODE_PARAM('a b&c')": "'a+b%26c'", "URL_ENCODE_PARAM(NULL)": "NULL"},
    ),
    _part(
        "fragment",
        by_row(url_fragment),
        "STRING",
        "The fragment after the #, decoded.",
        {"URL_EXTRACT_FRAGMENT('http://test.com#frag%20ment')": "'frag ment'"},
    ),
    _part(
        "host", by_row(url_host), "STRING", "The host.", {"URL_EXTRACT_HOST('http://me@test.com:8080/p')": "'test.com'"}
    ),
    url_function(
        "url_extract_parameter",
        signature="(url STRING, name STRING) -> STRING",
        doc="The decoded value of a parameter of the query; empty where it has none, NULL where it is not there.",
        python=url_parameter,
        examples={
            "URL_EXTRACT_PARAMETER('http://test.com?a%20b=c%20d', 'a b')": "'c d'",
            "URL_EXTRACT_PARAMETER('http://test.com', 'a')": "NULL",
            "URL_EXTRACT_PARAMETER(NULL, 'a')": "NULL",
        },
    ),
    _part(
        "path", by_row(url_path), "STRING", "The path.", {"URL_EXTRACT_PATH('http://test.com/path/to#a')": "'/path/to'"}
    ),
    _part("port", by_row(url_port), "INTEGER", "The port.", {"URL_EXTRACT_PORT('http://localhost:8080/p')": "8080"}),
    _part(
        "protocol", by_row(url_protocol), "STRING", "The scheme.", {"URL_EXTRACT_PROTOCOL('http://test.com')": "'http'"}
    ),
    _part(
        "query",
        by_row(url_query),
        "STRING",
        "The query, decoded.",
        {"URL_EXTRACT_QUERY('http://test.com?a=1')": "'a=1'"},
    ),
)
