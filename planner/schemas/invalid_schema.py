"""The error for a schema that cannot be used."""

from __future__ import annotations

from millstream.errors import StatementError


class InvalidSchema(StatementError):
    """A schema cannot be parsed, or refers to something that does not exist."""

    code = "INVALID_SCHEMA"
