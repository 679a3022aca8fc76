"""The sink `delta`: writes rows of topics to tables of Delta Lake. Transactional.

Offsets are stored as the table's application transactions, as Delta's protocol defines them ("Transaction
Identifiers"): one for each partition, in the commit of its rows. A commit fails if another commit has changed the same
offset since the table was opened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaProtocolError, SchemaMismatchError, TableNotFoundError

from millstream.errors import MillstreamError

from ..connector import TaskInfo
from ..connector_settings import setting
from ..stores.lake_errors import explained
from .lake_sink import KeyedLakeSettings, LakeChange, LakeSink

_DELETED: Final = "__deleted"


@dataclass(frozen=True, kw_only=True)
class DeltaSinkSettings(KeyedLakeSettings):
    location: str = setting("Folder or URL of the table (s3://bucket/${topic}); ${topic} is the topic's name.")
    storage_options: tuple[str, ...] = setting(
        "Options of the object store, name=value, separated by commas: AWS_REGION=eu-west-1.", default=(), secret=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if any("=" not in option for option in self.storage_options):
            raise ValueError("storage.options must be name=value")

    @property
    def options(self) -> dict[str, str]:
        return dict(option.split("=", 1) for option in self.storage_options)


class DeltaSink(LakeSink):
    """Tables of Delta Lake."""

    settings = DeltaSinkSettings
    has_times: ClassVar[bool] = False

    def __init__(self, settings: DeltaSinkSettings, task: TaskInfo) -> None:
        super().__init__(settings, task)
        self._own = settings

    def open_table(self, topic: str) -> DeltaLakeTable | None:
        with _explained():
            try:
                return DeltaLakeTable(DeltaTable(self._location(topic), storage_options=self._own.options))
            except TableNotFoundError:
                return None

    def create_table(self, topic: str, types: Mapping[str, pa.DataType]) -> DeltaLakeTable:
        with _explained():
            made = DeltaTable.create(
                self._location(topic),
                pa.schema(list(types.items())),
                mode="ignore",
                storage_options=self._own.options,
            )
            return DeltaLakeTable(made)

    def _location(self, topic: str) -> str:
        return self._own.location.replace("${topic}", topic)


class DeltaLakeTable:
    """One version of a table."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        return {field.name: field.type for field in pa.schema(self._table.schema())}

    def offset(self, name: str) -> int | None:
        return self._table.transaction_version(name)

    def commit(self, change: LakeChange) -> None:
        offsets = CommitProperties(
            app_transactions=[Transaction(name, offset) for name, offset in change.offsets.items()]
        )
        with _explained():
            if change.key:
                self._merge(change, offsets)
            else:
                write_deltalake(
                    self._table,
                    change.rows,
                    mode="append",
                    schema_mode="merge",
                    commit_properties=offsets,
                )

    def _merge(self, change: LakeChange, offsets: CommitProperties) -> None:
        changes = [_marked(change.rows, deleted=False), _marked(change.deleted, deleted=True)]
        merging = self._table.merge(
            pa.concat_tables(changes, promote_options="default"),
            " AND ".join(f'(table."{name}" IS NOT DISTINCT FROM change."{name}")' for name in change.key),
            source_alias="change",
            target_alias="table",
            merge_schema=bool(change.columns),
            commit_properties=offsets,
        )
        gone = f"change.{_DELETED}"
        merging = merging.when_matched_delete(gone).when_matched_update_all(except_cols=[_DELETED])
        merging.when_not_matched_insert_all(f"NOT {gone}", except_cols=[_DELETED]).execute()


def _marked(rows: pa.Table, *, deleted: bool) -> pa.Table:
    return rows.append_column(_DELETED, pa.array([deleted] * rows.num_rows, pa.bool_()))


@contextlib.contextmanager
def _explained() -> Generator[None]:
    """Converts errors of Delta Lake to ours."""
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        raise explained(error, "Delta Lake", passes=_passes, final=_refuses) from error


def _passes(error: Exception) -> str | None:
    match error:
        case CommitFailedError() | FileNotFoundError():  # another commit, or the table was dropped meanwhile
            return "the table has changed meanwhile"
        case OSError():
            return "the store does not answer"
        case _:
            return None


def _refuses(error: Exception) -> str | None:
    match error:
        case TableNotFoundError():  # while a table is created
            return "the place of the table cannot be used"
        case SchemaMismatchError() | DeltaProtocolError() | ValueError() | TypeError():
            return "the table cannot take these rows"
        case _:
            return None
