"""What PostgreSQL says to those who may not connect: libpq gives no SQLSTATE for it, so its words have to do."""

from __future__ import annotations

import re
from typing import Final

_REFUSALS: Final = re.compile(
    "password authentication failed|no password supplied|no pg_hba.conf entry|is not permitted to log in|"
    r"(role|database|user) \".*\" does not exist|permission denied for database"
)


def refuses_to_connect(text: str) -> bool:
    """Whether somebody has to change the user, the password, the database or the rights. In: `text`: of a connection
    that failed. A server that speaks another language than English is not understood: then a task waits.

    >>> refuses_to_connect('FATAL:  password authentication failed for user "bob"')
    True
    >>> refuses_to_connect("FATAL:  the database system is starting up")
    False
    """
    return _REFUSALS.search(text) is not None


def is_without_database(text: str) -> bool:
    """Whether the server has no such database.

    >>> is_without_database('FATAL:  database "shop" does not exist')
    True
    """
    return re.search(r"database \".*\" does not exist", text) is not None
