"""A table that is a folder of Parquet files, without a catalog: any reader of Parquet can read it.

Instead of a catalog there are files below `_millstream`, which readers ignore because of the name:

    _millstream/schemas/00000002.arrow                 the columns; the last file is valid
    _millstream/<connector>/<task>/000000000017.json   the last commit of a task: offsets, and the files of the commit
    _millstream/<connector>/<task>/000000000017-0-<life>.staged

A commit first writes its files outside of the table (staged), then its record, which makes it valid, and then moves the
files to where readers see them. A task that opens the table moves files that a record names and a dead task has not
moved. So after a crash at any moment the rows are there exactly once: without the record, no reader has seen them; with
it, all of them become visible. If one task replaces another, both may try to write the record with the same number. One
of them is refused. The names of its files differ, so they are not confused with those of the record.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ....logcore.failpoints import fp
from ..connector_errors import ConnectorFailed, SystemUnavailable
from ..stores.file_store import FileStore
from .hive_partitions import PartitionColumn, divided
from .lake_sink import LakeChange

_OWN: Final = "_millstream"
_SCHEMAS: Final = f"{_OWN}/schemas"
_RECORD: Final = re.compile(r"(?P<task>\d+)/(?P<number>\d{12})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetLayout:
    """`partitions`: the columns that name folders; `rows_max`: the most rows of a file."""

    partitions: tuple[PartitionColumn, ...] = ()
    rows_max: int
    compression: str


@dataclass(frozen=True, slots=True)
class _Commit:
    """`offsets`: the next offsets after all commits of the task; `files`: where they are staged, and where they are
    moved to; `life`: the life of the task that wrote the commit."""

    task: int
    number: int
    offsets: Mapping[str, int] = field(default_factory=dict)
    files: Sequence[tuple[str, str]] = ()
    life: str = ""

    def as_json(self) -> bytes:
        return orjson.dumps({"offsets": self.offsets, "files": self.files, "life": self.life})


class ParquetFolder:
    """One task's view of the table.

    In: `connector`: its identity. State: the commits in the store, and the rows that wait for the next commit.
    """

    def __init__(self, store: FileStore, layout: ParquetLayout, connector: str, task: int) -> None:
        self._store = store
        self._layout = layout
        self._connector = connector
        self._task = task
        self._folder = f"{_OWN}/{connector}"
        self._life = uuid.uuid4().hex
        self._schema_number, self._schema = 0, pa.schema([])
        self._commits: dict[int, _Commit] = {}
        self._waiting: list[pa.Table] = []
        self._waiting_offsets: dict[str, int] = {}

    def open(self) -> bool:
        """Opens the table, and finishes the commits of dead tasks. False if there is no table."""
        schemas = self._store.files(_SCHEMAS)
        if schemas:
            self._read_schema(schemas[-1].path)
        paths = [file.path for file in self._store.files(self._folder)]
        self._commits = self._last_commits(paths)
        for commit in self._commits.values():
            self._publish(commit)
        last = self._commits.get(self._task)
        for path in paths:
            if path.startswith(f"{self._folder}/{self._task}/") and (last is None or path != self._path(last)):
                self._store.delete(path)  # a staged file without a record or already moved, or an older record
        return bool(schemas)

    def create(self, types: Mapping[str, pa.DataType]) -> None:
        """Creates the table, unless it exists by now."""
        if not self._write_schema(types):
            self._read_schema(self._store.files(_SCHEMAS)[-1].path)

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        return {column.name: column.type for column in self._schema}

    def offset(self, name: str) -> int | None:
        """The next offset, including waiting rows."""
        known = [commit.offsets[name] for commit in self._commits.values() if name in commit.offsets]
        if name in self._waiting_offsets:
            known.append(self._waiting_offsets[name])
        return max(known, default=None)

    @property
    def waiting_rows(self) -> int:
        return sum(rows.num_rows for rows in self._waiting)

    @property
    def waiting_bytes(self) -> int:
        return sum(rows.nbytes for rows in self._waiting)

    def commit(self, change: LakeChange) -> None:
        """Keeps the rows until `flush`. New columns are written at once."""
        if change.columns:
            self.flush()
            if not self._write_schema({**self.types, **change.columns}):
                raise SystemUnavailable("the columns of the table have changed meanwhile")
        self._waiting.append(change.rows)
        self._waiting_offsets.update(change.offsets)

    def flush(self) -> None:
        """Writes the waiting rows atomically. Raises `SystemUnavailable` if another task has taken over."""
        if not self._waiting:
            return
        before = self._commits.get(self._task, _Commit(self._task, 0))
        number = before.number + 1
        offsets = {**before.offsets, **self._waiting_offsets}
        commit = _Commit(self._task, number, offsets, self._staged(number), self._life)
        fp("connect.lake_before_commit")
        self._record(commit)
        fp("connect.lake_after_commit")
        self._commits[self._task] = commit
        self._waiting.clear()
        self._waiting_offsets.clear()
        self._publish(commit)
        if before.number:
            self._store.delete(self._path(before))

    # Files

    def _staged(self, number: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        rows = pa.concat_tables(self._waiting)
        for folder, part in divided(rows, self._layout.partitions):
            for begin in range(0, part.num_rows, self._layout.rows_max):
                name = f"{number:012}-{len(found)}"
                staged = f"{self._folder}/{self._task}/{name}-{self._life}.staged"
                self._store.write(staged, self._encoded(part.slice(begin, self._layout.rows_max)))
                fp("connect.parquet_after_file")
                found.append((staged, f"{folder}part-{self._connector[:12]}-{self._task}-{name}.parquet"))
        return found

    def _encoded(self, rows: pa.Table) -> pa.Buffer:
        out = pa.BufferOutputStream()
        pq.write_table(rows, out, compression=self._layout.compression)
        return out.getvalue()

    def _publish(self, commit: _Commit) -> None:
        for staged, path in commit.files:
            fp("connect.parquet_before_move")
            try:
                self._store.move(staged, path)
            except FileNotFoundError:
                raise ConnectorFailed(
                    f"the file {path} of the last commit is gone, and so is {staged}: somebody has deleted it",
                    hint=f'Restore it. If it was deleted on purpose, take it out of "files" in {self._path(commit)}.'
                    " Then RESTART CONNECTOR.",
                ) from None

    # Records of commits

    def _record(self, commit: _Commit) -> None:
        path = self._path(commit)
        if not self._store.create(path, commit.as_json()):
            raise SystemUnavailable("the table has changed meanwhile: another task writes the same records")
        last = self._last_commits([file.path for file in self._store.files(self._folder)])[self._task]
        if last.number != commit.number:
            self._store.delete(path)
        if (last.number, last.life) != (commit.number, commit.life):
            raise SystemUnavailable("the table has changed meanwhile: another task writes the same records")

    def _last_commits(self, paths: Sequence[str]) -> dict[int, _Commit]:
        numbers: dict[int, int] = {}
        for path in paths:
            found = _RECORD.fullmatch(path.removeprefix(f"{self._folder}/"))
            if found is not None:
                task = int(found["task"])
                numbers[task] = max(numbers.get(task, 0), int(found["number"]))
        return {task: self._read_commit(_Commit(task, number)) for task, number in numbers.items()}

    def _read_commit(self, wanted: _Commit) -> _Commit:
        data = self._store.read(self._path(wanted))
        if data is None:
            raise SystemUnavailable("the table has changed meanwhile: another task writes to it")
        known: dict[str, Any] = orjson.loads(data)
        files = [(staged, path) for staged, path in known["files"]]
        return _Commit(wanted.task, wanted.number, known["offsets"], files, known["life"])

    def _path(self, commit: _Commit) -> str:
        return f"{self._folder}/{commit.task}/{commit.number:012}.json"

    # Columns

    def _read_schema(self, path: str) -> None:
        data = self._store.read(path)
        assert data is not None, "schemas are not deleted"
        self._schema = pa.ipc.read_schema(pa.py_buffer(data))
        self._schema_number = int(path.rpartition("/")[2].partition(".")[0])

    def _write_schema(self, types: Mapping[str, pa.DataType]) -> bool:
        schema = pa.schema(list(types.items()))
        number = self._schema_number + 1
        if not self._store.create(f"{_SCHEMAS}/{number:08}.arrow", schema.serialize().to_pybytes()):
            return False
        self._schema, self._schema_number = schema, number
        return True
