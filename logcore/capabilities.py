"""What a log can do, as a record that it answers: planner and executor ask for it, and never which log it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class LogCapabilities:
    """`columnar`: it stores columnar batches (n rows use n offsets), also in compacted topics. `protects_names`: only
    Millstream writes to topics named `_millstream…`. `shared`: topics there may belong to somebody else.
    `own_settings`: topics have Millstream's own properties, such as `millstream.value.format`. `acknowledged`: an
    acknowledged record is `synced` to disk, or only `replicated` to the memory of other brokers. `copies`: it takes
    batches at the offsets that they have elsewhere, from a mirror."""

    columnar: bool
    protects_names: bool
    shared: bool
    own_settings: bool
    acknowledged: Literal["synced", "replicated"]
    copies: bool


MILLSTREAM: Final = LogCapabilities(
    columnar=True, protects_names=True, shared=False, own_settings=True, acknowledged="synced", copies=True
)
KAFKA: Final = LogCapabilities(
    columnar=False, protects_names=False, shared=True, own_settings=False, acknowledged="replicated", copies=False
)
"""What every broker with Kafka's protocol can do."""

FEATURE: Final = "millstream.log"
"""The feature by which a server says that it can do all of `MILLSTREAM`; Kafka's clients ignore features that they do
not know."""
