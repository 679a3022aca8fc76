"""The options in the first line of a `%%millstream` cell."""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, cast

from millstream.errors import ServerError

from .chart_data import Kind

_RESULT: Final = re.compile(r"\s*(\w+)\s*<<")


class MagicUsage(ServerError):
    """The magic's line is invalid."""

    code = "MAGIC_USAGE"


@dataclass(frozen=True, slots=True)
class Options:
    """`rows`: how many rows a live table or chart keeps."""

    into: str | None
    form: Literal["relation", "df", "pl", "arrow"]
    live: bool
    chart: bool
    x: str | None
    y: tuple[str, ...] | None
    by: str | None
    kind: Kind | None
    title: str
    rows: int | None


def read_options(line: str) -> Options:
    """
    >>> options = read_options("found << --chart -x tea -y cups,earned --title 'Cups sold'")
    >>> options.into, options.x, options.y, options.title
    ('found', 'tea', ('cups', 'earned'), 'Cups sold')

    Raises `MagicUsage`.
    """
    named = _RESULT.match(line)
    chosen = _PARSER.parse_args(split_words(line[named.end() :] if named else line))
    chosen.into = named[1] if named else chosen.into
    if chosen.into is not None and not cast("str", chosen.into).isidentifier():
        raise MagicUsage(f'"{chosen.into}" is no name of a variable')
    chosen.y = tuple(name.strip() for name in chosen.y.split(",")) if chosen.y else None
    return Options(**vars(chosen))


def split_words(line: str) -> list[str]:
    """Splits like a command line. Raises `MagicUsage`."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise MagicUsage(str(error).lower()) from None


def help_text() -> str:
    return _PARSER.format_help()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise MagicUsage(message, hint="Write %millstream --help for what there is.")


def _parser() -> _Parser:
    parser = _Parser(
        prog="%%millstream", usage="%%%%millstream [NAME <<] [options]", add_help=False, allow_abbrev=False,
        description="Runs the cell's statements. :name is the value of a variable of the notebook.",
    )  # fmt: skip
    add = parser.add_argument
    add("--into", metavar="NAME", help="the variable that gets the last statement's result, as NAME << does")
    add("--as", dest="form", choices=("relation", "df", "pl", "arrow"), default="relation", help="the result's form")
    add("--live", action="store_true", help="show a table that changes as rows come")
    add("--chart", action="store_true", help="show a chart that moves as rows come")
    add("-x", metavar="COLUMN", help="the chart's column from left to right")
    add("-y", metavar="COLUMN,…", help="the chart's columns of heights")
    add("--by", metavar="COLUMN", help="a series for each value of this column")
    add("--kind", choices=("line", "bar"), help="how the chart is drawn")
    add("--title", default="", help="what stands above the chart")
    add("--rows", type=int, metavar="COUNT", help="how many rows a live table or chart keeps")
    return parser


_PARSER: Final = _parser()
