"""The mistake that is a schema nobody can use."""

from __future__ import annotations

from millstream.errors import StatementError


class InvalidSchema(StatementError):
    """A schema cannot be parsed, or refers to what is not there."""

    code = "INVALID_SCHEMA"
