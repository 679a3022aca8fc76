"""The ids of topics as 16 bytes, as Kafka's protocol and the records of groups have them."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from .controller.metadata_image import MetadataImage

ID_BYTES: Final = 16
_UUID: Final = re.compile(r"[0-9a-f]{32}")


def id_bytes(topic_id: str) -> bytes:
    """The same on all nodes, for ever; different for different topics. A topic that was upgraded is called by a UUID,
    which its clients know."""
    if _UUID.fullmatch(topic_id):
        return bytes.fromhex(topic_id)
    return blake2b(topic_id.encode(), digest_size=ID_BYTES).digest()


class ImageTopicIds:
    """State: which id is whose, of the topics that the metadata had when somebody last asked for a new one."""

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
