"""The registry of handlers: house rules."""

from __future__ import annotations

import inspect

from millstream.server.handlers import HANDLERS
from millstream.sql import ast


def _statement_classes() -> set[type]:
    found = vars(ast).values()
    return {each for each in found if inspect.isclass(each) and issubclass(each, ast.Statement)} - {ast.Statement}


def test_every_statement_class_has_a_handler() -> None:
    assert set(HANDLERS) == _statement_classes()


def test_every_handler_says_what_it_does() -> None:
    assert all(handler.__doc__ for handler in HANDLERS.values())
