"""The events, from the shared folder's generator: files that batch queries read, and records for topics."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FileFormat = Literal["ndjson", "arrow"]
STREAMS: Final = ("person", "auction", "bid")
ARRIVAL_MS: Final = 1_234  # a record's own time, which is when it arrived, is that much later than the event's


def generator_path() -> Path:
    """The generator in the shared folder: MILLSTREAM_SHARED, or `shared` beside the repository. It may be missing."""
    repository = Path(__file__).resolve().parent.parent.parent
    shared = os.environ.get("MILLSTREAM_SHARED")
    return (repository / shared if shared else repository.parent / "shared") / "nexmark" / "generate.py"


@dataclass(frozen=True, slots=True)
class Events:
    """Generated files below `folder`: `FORMAT/STREAM/part-NNNNN.FORMAT`, a file per partition, in both formats."""

    folder: Path
    partitions: int
    rows: Mapping[str, int]

    def paths(self, stream: str, format: FileFormat) -> list[Path]:
        return [self.folder / format / stream / f"part-{p:05d}.{format}" for p in range(self.partitions)]

    def columns(self, stream: str, partition: int) -> pa.Table:
        """The rows of a partition; memory-mapped."""
        path = self.paths(stream, "arrow")[partition]
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()

    def lines(self, stream: str, partition: int) -> Iterator[pa.Array]:
        """The same rows as JSON texts, as many at a time as fit into 64 MiB."""
        with self.paths(stream, "ndjson")[partition].open("rb") as file:
            rest = b""
            while block := file.read(1 << 26):
                block = rest + block
                end = block.rfind(b"\n") + 1
                rest = block[end:]
                yield _split(block[:end])


def generate(
    folder: Path, events: int, *, seed: int = 42, rate: float = 10_000.0, disorder_ms: int = 0, partitions: int = 1
) -> Events:
    """In: `rate`: events per second of event time."""
    module = _generator()
    options = ["--events", str(events), "--seed", str(seed), "--rate", str(rate)]
    options += ["--disorder-ms", str(disorder_ms), "--partitions", str(partitions)]
    for format in ("ndjson", "arrow"):
        manifest = module.generate(module.parse([*options, "--format", format, "--out", str(folder / format)]))
    return Events(folder, partitions, manifest["rows"])


def _generator() -> Any:
    spec = importlib.util.spec_from_file_location("nexmark_generator", generator_path())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _split(text: bytes) -> pa.Array:
    """The lines of a text that ends with a line, without a Python object for each."""
    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n")).astype(np.int32)
    offsets = np.concatenate([np.zeros(1, dtype=np.int32), ends + 1])
    whole = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return pc.binary_slice(whole, 0, -1)
