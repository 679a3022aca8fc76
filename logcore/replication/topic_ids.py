"""Topic ids as 16 bytes, as used in Kafka's protocol and in the records of groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from .controller.metadata_image import MetadataImage

ID_BYTES: Final = 16
_UUID: Final = re.compile(r"[0-9a-f]{32}")


def id_bytes(topic_id: str) -> bytes:
    """The same on all nodes, forever; different for different topics. The id of an upgraded topic is a UUID, which its
    clients already know, so its bytes are used."""
    if _UUID.fullmatch(topic_id):
        return bytes.fromhex(topic_id)
    return blake2b(topic_id.encode(), digest_size=ID_BYTES).digest()


class ImageTopicIds:
    """State: ids and names of topics, computed again when a caller asks and the topics of the metadata have changed."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._seen: object = None
        self._names: dict[bytes, str] = {}
        self._ids: dict[str, bytes] = {}

    def id_of(self, name: str) -> bytes | None:
        self._refresh()
        return self._ids.get(name)

    def name_of(self, id: bytes) -> str | None:
        self._refresh()
        return self._names.get(id)

    def _refresh(self) -> None:
        topic_ids = self._image().topic_ids
        if topic_ids is not self._seen:
            self._seen = topic_ids
            self._ids = {name: id_bytes(topic_id) for name, topic_id in topic_ids.items()}
            self._names = {id: name for name, id in self._ids.items()}
