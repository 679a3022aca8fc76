"""Recognizes PostgreSQL's refusals to connect by their text, because libpq returns no SQLSTATE for them."""

from __future__ import annotations

import re
from typing import Final

_REFUSALS: Final = re.compile(
    "password authentication failed|no password supplied|no pg_hba.conf entry|is not permitted to log in|"
    r"(role|database|user) \".*\" does not exist|permission denied for database"
)


def refuses_to_connect(text: str) -> bool:
    """Whether a user has to change the user name, the password, the database or the rights. In: `text`: the error of a
    failed connection. Only English texts are recognized; with another language a task waits instead.

    >>> refuses_to_connect('FATAL:  password authentication failed for user "bob"')
    True
    >>> refuses_to_connect("FATAL:  the database system is starting up")
    False
    """
    return _REFUSALS.search(text) is not None


def is_without_database(text: str) -> bool:
    """Whether the error says that the database does not exist.

    >>> is_without_database('FATAL:  database "shop" does not exist')
    True
    """
    return re.search(r"database \".*\" does not exist", text) is not None
