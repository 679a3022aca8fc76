"""The file in which a log of one node keeps the settings of what is no topic."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from .errors import CorruptLog, write_error
from .log_settings import Changes, with_changes
from .storage.checked_json import read_with_copy, write_with_copy


class SettingsFile:
    """State: what `settings.json` says. Any thread may call any method."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        """Raises `CorruptLog`."""
        self._path = folder / "settings.json"
        self._durable = durable
        self._lock = threading.Lock()
        try:
            self._known: Mapping[str, Mapping[str, str]] = read_with_copy(self._path, durable=durable) or {}
        except ValueError as error:
            raise CorruptLog(
                f"{self._path} is damaged at position 0: {error}",
                hint="Restore it from a backup, or remove it with its copy: then nodes, groups, clients and users have"
                " the settings of the configuration.",
            ) from error

    def of(self, resource: str) -> Mapping[str, str]:
        return self._known.get(resource, {})

    def resources(self, prefix: str) -> Iterable[str]:
        return [resource for resource in self._known if resource.startswith(prefix)]

    def change(self, resource: str, changes: Changes) -> None:
        """Durable on return. Raises `LogError`."""
        with self._lock:
            known = with_changes(self._known, resource, changes)
            try:
                write_with_copy(self._path, known, durable=self._durable)
            except OSError as error:
                raise write_error(error, "changed settings") from error
            self._known = known
