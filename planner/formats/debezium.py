"""DEBEZIUM: the envelopes of change data capture, in JSON."""

from __future__ import annotations

from .format import Format, only_text_map_keys

DEBEZIUM = Format(
    "DEBEZIUM",
    "Changes in Debezium's envelope, in JSON: the row after a change, and no value after a delete.",
    wraps=True,
    unwraps=False,
    refusal=only_text_map_keys("DEBEZIUM only supports MAP types with STRING keys"),
    by_name=True,
)
