"""The address of the server for commands: `--server URL`, or MILLSTREAM_SERVER."""

from __future__ import annotations

import urllib.parse
from typing import Annotated, Final

import typer

VARIABLE: Final = "MILLSTREAM_SERVER"
DEFAULT_SERVER: Final = "http://127.0.0.1:8088"

ServerOption = Annotated[
    str,
    typer.Option("--server", envvar=VARIABLE, metavar="URL", help="HTTP address; of a cluster, of any node."),
]


def with_identity(url: str, user: str, password: str) -> str:
    """The URL with user and password.

    >>> with_identity("127.0.0.1:8088", "ada", "p@ss")
    'http://ada:p%40ss@127.0.0.1:8088'
    """
    parsed = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
    pair = f"{urllib.parse.quote(user, safe='')}:{urllib.parse.quote(password, safe='')}"
    return urllib.parse.urlunsplit(parsed._replace(netloc=f"{pair}@{parsed.netloc.rpartition('@')[2]}"))
