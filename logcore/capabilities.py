"""What a log can do. The planner and the executor ask a log for this record; they never ask which log it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class LogCapabilities:
    """`columnar`: it stores columnar batches (n rows use n offsets), also in compacted topics. `protects_names`: only
    Millstream writes to topics named `_millstream…`. `shared`: some topics may belong to other applications.
    `own_settings`: topics have Millstream's own properties, such as `millstream.value.format`. `acknowledged`: an
    acknowledged record is `synced` to disk, or only `replicated` to the memory of other brokers. `copies`: a mirror
    can append batches at the offsets that they have in another log. `reserved`: how names of topics begin that
    statements neither create, write nor delete."""

    columnar: bool
    protects_names: bool
    shared: bool
    own_settings: bool
    acknowledged: Literal["synced", "replicated"]
    copies: bool
    reserved: tuple[str, ...] = ("_millstream",)


MILLSTREAM: Final = LogCapabilities(
    columnar=True, protects_names=True, shared=False, own_settings=True, acknowledged="synced", copies=True
)
KAFKA: Final = LogCapabilities(
    columnar=False, protects_names=False, shared=True, own_settings=False, acknowledged="replicated", copies=False
)
"""What every broker that speaks Kafka's protocol can do."""

FEATURE: Final = "millstream.log"
"""A server that reports this feature has all capabilities of `MILLSTREAM`. Kafka clients ignore unknown features."""
