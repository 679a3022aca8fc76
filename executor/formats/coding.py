"""The interface that each format module registers, and the argument of its methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ...planner.schema import Column
from ...planner.specs import FormatSpec
from .codec import Decoder, Encoder
from .wire import SchemaLookup


@dataclass(frozen=True, slots=True)
class RecordPart:
    """The keys or the values of a topic. `columns`: all columns, including headers columns, which no format reads.
    `needed`: which of them a reader needs; None: all. `schemas`: finds the schemas that records name."""

    spec: FormatSpec
    columns: Sequence[Column]
    schemas: SchemaLookup
    needed: Sequence[bool] | None = None

    @property
    def numbers(self) -> list[int]:
        """The positions of the columns that the format holds."""
        return [number for number, column in enumerate(self.columns) if column.role != "HEADERS"]

    @property
    def held(self) -> list[Column]:
        return [self.columns[number] for number in self.numbers]

    @property
    def wanted(self) -> list[bool]:
        """For each column, whether the format holds it and it is needed."""
        held = [column.role != "HEADERS" for column in self.columns]
        return held if self.needed is None else [a and b for a, b in zip(held, self.needed, strict=True)]

    @property
    def read(self) -> list[Column]:
        return [column for column, wanted in zip(self.columns, self.wanted, strict=True) if wanted]

    @property
    def bare(self) -> bool:
        """Whether a record is the value of its only column."""
        return not self.spec.wrap_single and len(self.held) == 1


class Coding:
    """A format. `encode_one` and `decode_one` are for tests and tools: see `encode_logical` and `decode_logical`."""

    def decoder(self, part: RecordPart) -> Decoder:
        raise AssertionError(f"{type(self).__name__} reads nothing")

    def encoder(self, part: RecordPart) -> Encoder:
        raise AssertionError(f"{type(self).__name__} writes nothing")

    def encode_one(self, part: RecordPart, value: Any) -> bytes:
        return value if isinstance(value, bytes) else str(value).encode()

    def decode_one(self, part: RecordPart, data: bytes) -> Any:
        return data.decode()


_CODINGS: dict[str, Coding] = {}
C = TypeVar("C", bound=Coding)


def codes(*names: str) -> Callable[[type[C]], type[C]]:
    """Registers the class that reads and writes formats of these names."""

    def register(coding: type[C]) -> type[C]:
        for name in names:
            assert name not in _CODINGS, f"two codings for {name}"
            _CODINGS[name] = coding()
        return coding

    return register


def find_coding(name: str) -> Coding | None:
    return _CODINGS.get(name)


def coded_formats() -> frozenset[str]:
    """The names of all formats that have a coding."""
    return frozenset(_CODINGS)
