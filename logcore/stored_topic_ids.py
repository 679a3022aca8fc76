"""The ids of topics, as Kafka's protocol and records about groups have them: those of a log of one node."""

from __future__ import annotations

from collections.abc import Mapping

from .storage.data_directory import DataDirectory, StoredTopic


class StoredTopicIds:
    """State: whose each id is, of the topics that there were when somebody last asked. Any thread may call it."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._seen: tuple[Mapping[str, StoredTopic], Mapping[bytes, str]] = ({}, {})

    def id_of(self, name: str) -> bytes | None:
        stored = self._directory.topics.get(name)
        return None if stored is None else bytes.fromhex(stored.id)

    def name_of(self, id: bytes) -> str | None:
        topics, names = self._seen
        now = self._directory.topics
        if now is not topics:
            names = {bytes.fromhex(stored.id): name for name, stored in now.items()}
            self._seen = now, names
        return names.get(id)
