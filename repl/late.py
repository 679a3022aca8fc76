"""Loads, in a thread, modules that load slowly and that the first prompt does not need."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import Any

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ..sql.identifiers import RESERVED
from .names import LiveNames


class LateCompletion(Completer):
    """`completion.StatementCompleter`, once it is loaded. Earlier callers wait for it."""

    def __init__(self, names: LiveNames) -> None:
        self._names = names
        self._completer: Completer | None = None
        self._keywords = RESERVED
        self._thread = threading.Thread(target=self._load, name="millstream-shell-completion", daemon=True)
        self._thread.start()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        self._thread.join()
        if self._completer is not None:
            yield from self._completer.get_completions(document, complete_event)

    def keywords(self) -> frozenset[str]:
        """The words to highlight; only a few before the completer is loaded."""
        return self._keywords

    def _load(self) -> None:
        completion: Any = importlib.import_module(".completion", __package__)
        self._keywords = completion.highlighted_words()
        self._completer = completion.StatementCompleter(self._names)
