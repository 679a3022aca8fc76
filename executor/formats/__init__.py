"""Formats: turn the keys or values of records into columns, and columns into bytes.

`decoder(spec, columns)` and `encoder(spec, columns)` work on batches; `encode_logical` and `decode_logical` on single
values, for tests and tools; `warm_up()` compiles ahead of time. Formats do not contain headers columns: a decoder gives
NULL for them, an encoder ignores them.
"""

from __future__ import annotations

import importlib
import pkgutil

from .codec import Decoded, Decoder, Encoder, RowError
from .compiled.warm_up import warm_up
from .registry import decode_logical, decoder, encode_logical, encoder
from .windows import add_window, take_window

__all__ = [
    "Decoded",
    "Decoder",
    "Encoder",
    "RowError",
    "add_window",
    "decode_logical",
    "decoder",
    "encode_logical",
    "encoder",
    "take_window",
    "warm_up",
]

for _module in pkgutil.iter_modules(__path__):  # each module registers its formats
    importlib.import_module(f"{__name__}.{_module.name}")
