"""URLs of servers."""

from __future__ import annotations

import urllib.parse


def with_identity(url: str, user: str, password: str) -> str:
    """The URL with user and password in it.

    >>> with_identity("127.0.0.1:8088", "ada", "p@ss")
    'http://ada:p%40ss@127.0.0.1:8088'
    """
    parsed = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
    pair = f"{urllib.parse.quote(user, safe='')}:{urllib.parse.quote(password, safe='')}"
    return urllib.parse.urlunsplit(parsed._replace(netloc=f"{pair}@{parsed.netloc.rpartition('@')[2]}"))
