"""Completion in `%%millstream` and `%%sql` cells: the shell's suggestions, from the live catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from millstream.repl.completion import StatementCompleter
from millstream.repl.names import LiveNames

from ..connection import Connection

_MAGICS: Final = ("%%millstream", "%%sql")
_COMPLETIONS_MAX: Final = 200


class CellCompletion:
    """Names are read from `connection()`, and cached until the connection changes, or until `forget`."""

    def __init__(self, connection: Callable[[], Connection | None]) -> None:
        self._connection = connection
        self._names: LiveNames | None = None
        self._of: Connection | None = None

        @context_matcher(identifier="millstream")
        def matcher(context: CompletionContext) -> SimpleMatcherResult:
            return self._match(context)

        self.matcher = matcher

    def forget(self) -> None:
        if self._names is not None:
            self._names.forget()

    def _match(self, context: CompletionContext) -> SimpleMatcherResult:
        cell = context.full_text
        connection = self._connection()
        first_line = cell.find("\n")
        if connection is None or not cell.startswith(_MAGICS) or context.cursor_line == 0 or first_line < 0:
            return {"completions": []}
        lines = cell.split("\n")
        before = sum(len(line) + 1 for line in lines[1 : context.cursor_line]) + context.cursor_position
        document = Document(cell[first_line + 1 :], before)
        found = list(StatementCompleter(self._live_names(connection)).get_completions(document, CompleteEvent(True)))
        if not found:
            return {"completions": []}
        typed = -min(completion.start_position for completion in found)
        return {
            "completions": [
                SimpleCompletion(text=completion.text, type=_kind(completion.display_meta_text))
                for completion in found[:_COMPLETIONS_MAX]
            ],
            "matched_fragment": document.text_before_cursor[len(document.text_before_cursor) - typed :],
            "suppress": True,
            "ordered": True,
        }

    def _live_names(self, connection: Connection) -> LiveNames:
        if self._names is None or self._of is not connection:
            self._names, self._of = LiveNames(lambda: connection.client), connection
        return self._names


def _kind(meta: Any) -> str:
    return str(meta) or "sql"
