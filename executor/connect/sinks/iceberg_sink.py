"""The sink `iceberg`: writes rows of topics to tables of Apache Iceberg. Transactional.

Offsets are stored as properties of the table in the commit of their rows, so they remain when old snapshots expire.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
    ValidationError,
    ValidationException,
    WaitingForLockException,
)
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, IsNull, Or
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
from pyiceberg.table import Table, TableProperties
from requests.exceptions import RequestException
from sqlalchemy.exc import OperationalError

from millstream.errors import MillstreamError

from ..connector import TaskInfo
from ..connector_errors import ConnectorFailed, one_line
from ..connector_settings import setting
from ..stores.lake_errors import explained
from .lake_sink import KeyedLakeSettings, LakeChange, LakeSink


@dataclass(frozen=True, kw_only=True)
class IcebergSinkSettings(KeyedLakeSettings):
    table: str = setting("Table, with its namespace (shop.${topic}); ${topic} is the topic's name.")
    catalog_name: str = setting("Name of the catalog; a catalog of type sql keeps tables by it.", default="default")
    catalog_properties: tuple[str, ...] = setting(
        "Catalog, as PyIceberg's properties name=value, separated by commas: type=rest,uri=http://host:8181.",
        secret=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if any("=" not in item for item in self.catalog_properties):
            raise ValueError("catalog.properties must be name=value")
        if "." not in self.table:
            raise ValueError("table needs a namespace, as in shop.orders")

    @property
    def catalog(self) -> dict[str, str]:
        return dict(item.split("=", 1) for item in self.catalog_properties)


class IcebergSink(LakeSink):
    """Tables of Apache Iceberg. State: the catalog."""

    settings = IcebergSinkSettings

    def __init__(self, settings: IcebergSinkSettings, task: TaskInfo) -> None:
        super().__init__(settings, task)
        self._own = settings
        with _explained():
            try:
                self._catalog: Catalog = load_catalog(settings.catalog_name, **settings.catalog)
            except (ValueError, ImportError) as error:
                raise ConnectorFailed(f"catalog.properties name no catalog: {one_line(error)}") from None

    def open_table(self, topic: str) -> IcebergTable | None:
        with _explained():
            try:
                return IcebergTable(self._catalog.load_table(self._name(topic)))
            except NoSuchTableError:
                return None

    def create_table(self, topic: str, types: Mapping[str, pa.DataType]) -> IcebergTable:
        name = self._name(topic)
        with _explained():
            with contextlib.suppress(NamespaceAlreadyExistsError):
                self._catalog.create_namespace(name.rpartition(".")[0])
            with contextlib.suppress(TableAlreadyExistsError):
                self._catalog.create_table(name, pa.schema(list(types.items())))
            return IcebergTable(self._catalog.load_table(name))

    def close(self) -> None:
        self._catalog.close()

    def _name(self, topic: str) -> str:
        return self._own.table.replace("${topic}", topic.replace(".", "_"))


class IcebergTable:
    """A table as it was when it was loaded."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        return {field.name: field.type for field in self._table.schema().as_arrow()}

    def offset(self, name: str) -> int | None:
        found = self._table.properties.get(name)
        return None if found is None else int(found)

    def commit(self, change: LakeChange) -> None:
        self._try_once()
        with _explained(), self._table.transaction() as transaction:
            if change.columns:
                with transaction.update_schema() as update:
                    update.union_by_name(pa.schema(list(change.columns.items())))
            if change.key:
                replaced = change.rows.select(change.key)
                transaction.delete(_any_of(pa.concat_tables([replaced, change.deleted])))
            if change.rows.num_rows:
                transaction.append(change.rows)
            transaction.set_properties({name: str(offset) for name, offset in change.offsets.items()})

    def _try_once(self) -> None:
        """Turns off PyIceberg's retries. It would repeat a commit on top of other commits, which may contain the same
        rows from another task of this connector. Only this copy of the metadata changes; the table itself keeps its
        property."""
        once = {**self._table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        self._table.metadata = self._table.metadata.model_copy(update={"properties": once})


def _any_of(keys: pa.Table) -> BooleanExpression:
    """True for rows with one of these keys."""
    if keys.num_columns == 1 and not keys.column(0).null_count:
        return In(keys.column_names[0], keys.column(0).to_pylist())  # pyrefly: ignore[bad-argument-count, unexpected-positional-argument] - its __new__ too
    each = [_all_of(row) for row in keys.to_pylist()]
    return each[0] if len(each) == 1 else Or(*each)


def _all_of(key: Mapping[str, Any]) -> BooleanExpression:
    parts = [IsNull(name) if value is None else EqualTo(name, value) for name, value in key.items()]  # pyrefly: ignore[unexpected-positional-argument]
    return parts[0] if len(parts) == 1 else And(*parts)


@contextlib.contextmanager
def _explained() -> Generator[None]:
    """Converts errors of Iceberg, its catalogs and their databases to ours."""
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        raise explained(error, "Iceberg", passes=_passes, final=_refuses) from error


def _passes(error: Exception) -> str | None:
    if isinstance(error, CommitFailedException | NoSuchTableError | WaitingForLockException):
        return "the table has changed meanwhile"
    if isinstance(error, _PASSING):
        return "the catalog of Iceberg does not answer"
    return "the store does not answer" if isinstance(error, OSError) else None


def _refuses(error: Exception) -> str | None:
    if isinstance(error, OSError):  # some errors of `requests` are also ValueErrors
        return None
    if isinstance(error, _NO_ACCESS):
        return "the catalog of Iceberg refuses access"
    if isinstance(error, BadRequestError | NoSuchNamespaceError | NoSuchPropertyException | NotInstalledError):
        return "the catalog of Iceberg refuses the request"
    return "the table cannot take these rows" if isinstance(error, _UNFIT) else None


_PASSING: Final = (
    AuthorizationExpiredError, CommitStateUnknownException, OperationalError, RequestException, ServerError,
    ServiceUnavailableError, TooManyRequestsError,
)  # fmt: skip
"""CommitStateUnknown is temporary as well: next time, the offsets in the table show whether the commit succeeded."""
_NO_ACCESS: Final = (ForbiddenError, OAuthError, UnauthorizedError)
_UNFIT: Final = (TypeError, UnsupportedPyArrowTypeException, ValidationError, ValidationException, ValueError)
