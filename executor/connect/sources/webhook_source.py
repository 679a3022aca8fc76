"""The source `webhook`: receives requests to `POST /hooks/<connector>` on the HTTP listener.

A delivery is answered when its records are committed. It cannot be read again, so a sender that gets no answer has to
send it again. If a header or the signature identifies the delivery, a repeated delivery is recognized and written only
once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ..connector import Chunk, ConnectRecord, Guarantee, Position, SourceConnector, TaskInfo
from ..connector_errors import ConnectorFailed, InvalidConnector
from ..connector_settings import setting
from ..converters import converter_of, json_text
from ..inbox import Delivery
from .json_pointers import exact_json
from .webhook_signatures import ALGORITHMS, SCHEMES, NotSigned, SignatureRule

_DELIVERIES: Final = 200
_HEADERS: Final = {"github": "x-hub-signature-256", "stripe": "stripe-signature"}
_PREFIXES: Final = {"github": "sha256="}
_IDS: Final = {"github": "x-github-delivery"}
_GROWTH_BYTES_MAX: Final = 1_000_000  # a topic's records are limited to 1 MiB by default


@dataclass(frozen=True)
class WebhookSettings:
    topic: str = setting("Topic that is written.")
    signature_scheme: str = setting(
        "Who may send: github and stripe sign as these do, hmac by the settings, token sends the secret itself.",
        choices=SCHEMES,
    )
    signature_secret: str = setting("Secret that sender and connector share.", secret=True)
    signature_header: str = setting("Header of the signature, or of the token; github and stripe have one.", default="")
    signature_algorithm: str = setting("Hash of hmac.", default="sha256", choices=ALGORITHMS)
    signature_encoding: str = setting("How hmac's signature is written.", default="hex", choices=("hex", "base64"))
    signature_prefix: str = setting("What stands before hmac's signature, such as sha256=.", default="")
    signature_timestamp_header: str = setting(
        "Header with the seconds since 1970 that hmac signs as time.body; without it the body alone is signed.",
        default="",
    )
    replay_window_ms: int = setting("How far a signed time may be from ours.", default=300_000)
    delivery_id_header: str = setting(
        "Header that names a delivery, the same at each attempt; github has one.", default=""
    )
    delivery_ids_kept: int = setting("So many deliveries are known again, the newest ones.", default=1000)
    format: str = setting("What a body is.", default="json", choices=("json", "ndjson", "raw"))
    key_field: str | None = setting("Field of JSON or NDJSON that becomes the key.", default=None)
    key_converter: str = setting("How the key is written.", default="json")
    max_body_bytes: int = setting("A longer body is refused.", default=1_000_000)

    def __post_init__(self) -> None:
        if not self.signature_secret:
            raise InvalidConnector("signature.secret is empty", setting="signature.secret")
        if not self.header:
            raise InvalidConnector(
                f"signature.header is missing: signature.scheme={self.signature_scheme} needs it",
                setting="signature.header",
            )
        for name, value, least in (
            ("replay.window.ms", self.replay_window_ms, 1),
            ("delivery.ids.kept", self.delivery_ids_kept, 0),
            ("max.body.bytes", self.max_body_bytes, 1),
        ):
            if value < least:
                raise InvalidConnector(f"{name} must be {least} or more", setting=name)

    @property
    def header(self) -> str:
        return (self.signature_header or _HEADERS.get(self.signature_scheme, "")).lower()

    @property
    def rule(self) -> SignatureRule:
        own = self.signature_scheme == "hmac"
        scheme: Any = self.signature_scheme
        encoding: Any = self.signature_encoding if own else "hex"
        return SignatureRule(
            scheme,
            self.signature_secret,
            self.header,
            self.signature_algorithm if own else "sha256",
            encoding,
            self.signature_prefix if own else _PREFIXES.get(self.signature_scheme, ""),
            self.signature_timestamp_header.lower() if own else "",
            self.replay_window_ms,
        )


class WebhookSource(SourceConnector):
    """Requests to `/hooks/<connector>`.

    State: the deliveries whose records are in the open transaction, each with its number of records.
    """

    settings = WebhookSettings
    guarantee: ClassVar[Guarantee] = "at least once"
    is_sent_records = True

    def __init__(self, settings: WebhookSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._rule = settings.rule
        self._clock = task.clock
        self._inbox = task.inbox
        self._id_header = (settings.delivery_id_header or _IDS.get(settings.signature_scheme, "")).lower()
        self._key = converter_of({"key.converter": settings.key_converter}, "key")
        self._under_way: list[tuple[Delivery, int]] = []
        self._inbox.open(settings.max_body_bytes)

    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        committed = dict.fromkeys([] if position is None else position["known"])
        coming: dict[str, None] = {}
        count = 0 if position is None else position["deliveries"]
        records: list[ConnectRecord] = []
        for delivery in self._inbox.take(_DELIVERIES, timeout_s):
            try:
                name = self._name(delivery)
                if name in committed:
                    delivery.settle("known")
                    continue
                found = [] if name in coming else list(self._records(delivery.body))
            except NotSigned as error:
                delivery.settle("refused", str(error))
                continue
            except ValueError as error:
                delivery.settle("not meant", str(error))
                continue
            records += found
            count += 1
            self._under_way.append((delivery, len(found)))
            if name:
                coming[name] = None
        if not self._under_way:
            return None
        kept = [*committed, *coming][-self._settings.delivery_ids_kept :] if self._settings.delivery_ids_kept else []
        return Chunk(records, {"deliveries": count, "known": kept})

    def acknowledge(self, position: Position) -> None:
        under_way, self._under_way = self._under_way, []
        for delivery, records in under_way:
            delivery.settle("committed", records=records)

    def lag(self) -> int:
        return len(self._inbox)

    def close(self) -> None:
        self._inbox.close()
        for delivery, _ in self._under_way:
            delivery.settle("unavailable", "the connector stopped")

    def _name(self, delivery: Delivery) -> str:
        """A digest of what identifies the delivery; empty if nothing does. Raises `NotSigned`."""
        signed = self._rule.check(delivery.headers, delivery.body, self._clock.now_ms())
        name = delivery.headers.get(self._id_header, "") if self._id_header else ""
        return hashlib.sha256((name or signed).encode()).hexdigest()[:24] if name or signed else ""

    def _records(self, body: bytes) -> Iterator[ConnectRecord]:
        """The records of a body. Raises ValueError, also for content that would otherwise stop the task."""
        if self._settings.format == "raw":
            yield ConnectRecord(self._settings.topic, None, body)
            return
        for line in body.splitlines() if self._settings.format == "ndjson" else (body,):
            if self._settings.format == "ndjson" and not line.strip():
                continue
            value = exact_json(line)
            try:
                text = json_text(value)
            except TypeError as error:
                raise ValueError(f"it cannot be written: {error}") from None
            if len(text) > max(_GROWTH_BYTES_MAX, self._settings.max_body_bytes):
                raise ValueError("its numbers are too long once they are written out")
            yield ConnectRecord(self._settings.topic, self._key_of(value), value)

    def _key_of(self, value: Any) -> Any:
        field = self._settings.key_field
        key = value.get(field) if field is not None and isinstance(value, Mapping) else None
        try:
            self._key.to_bytes(key)
        except ConnectorFailed as error:
            raise ValueError(f"{field} cannot be the key: {error.message}") from None
        return key
