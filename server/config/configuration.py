"""The configuration of a server: flags over the environment (`MILLSTREAM_…`) over a TOML file over defaults."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from millstream.errors import InvalidProperty, LogError, ServerError, did_you_mean

from ...logcore.cores.expiry import ExpiryTimes
from ...logcore.external.external_log import ExternalLogSettings
from ...logcore.external.kafka_properties import KafkaProperties
from ...sql.settings.property import text_of
from ...sql.settings.property_table import EXECUTOR, LISTENERS
from ..rest_proxy.proxy_settings import RestProxySettings
from ..security.access import AccessSettings
from ..security.tls import ClusterTlsSettings, TlsSettings, with_ksqldb_names
from .properties import checked_properties
from .server_settings import ServerSettings
from .validation_reasons import reason_of

EXTERNAL: Final = "external"
_PREFIX: Final = "MILLSTREAM_"
_FIELD: Final = re.compile(r'for field "(\w+)"')


class InvalidConfiguration(ServerError):
    """A file, a variable or a flag of the configuration cannot be used."""

    code = "INVALID_CONFIGURATION"


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on. With port 0, the system chooses a free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether it is only reachable from this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """`HOST:PORT`, `PORT`, `[::1]:PORT`. Raises ValueError."""
        host, separator, port = text.strip().rpartition(":")
        if not port.isascii() or not port.isdecimal() or int(port) > 65535 or (separator and not host):
            raise ValueError(f"{text!r} is not an address: write HOST:PORT, for example 127.0.0.1:8088")
        return cls(host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port))


class Configuration(BaseSettings):
    """Read once at start. `properties` are the engine's, under their canonical names."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
    )

    data: Path
    """Data folder: the log, and all caches of it."""
    http: Annotated[ListenAddress, NoDecode] = ListenAddress("127.0.0.1", 8088)
    """Address of the HTTP listener. If other machines can reach it, set [tls] or [access]."""
    kafka: Annotated[ListenAddress | Literal["external"], NoDecode] = ListenAddress("127.0.0.1", 9092)
    """Address of the Kafka listener of the log in `data`; or `external`: the log is on the brokers of [external]."""
    external: dict[str, str] = Field(default_factory=dict)
    """How to connect to the brokers of an external log: `bootstrap.servers`, `security.protocol`, `sasl.mechanism`,
    `sasl.jaas.config`, `ssl.…` and others, under the names that they have in Kafka; see docs/external-kafka.md."""
    http_hosts: tuple[str, ...] = ()
    """Further host names of the HTTP API and the schema registry, for example of a proxy, a container or a service. The
    names of this machine, of the cluster and of the addresses above are known; `*`: any. Requests for other names are
    refused, to prevent DNS rebinding by web pages; IP addresses are always accepted."""
    console: bool = True
    """Serve the web console at /console of the HTTP listener. Its pages have the users and rights of the API."""
    mcp: bool = False
    """Serve MCP (Model Context Protocol) at /mcp of the HTTP listener, for programs with language models. Its tools
    only read, and have the users and rights of the API; see docs/mcp.md."""
    rest_proxy: bool = True
    """Serve Confluent's REST proxy (/topics, /consumers, /brokers, /v3) on the HTTP listener. It has the users of the
    API and the rights of the Kafka listener; see docs/rest-proxy.md."""
    rest_proxy_consumers_max: int = Field(default=100, ge=0)
    """Limit of consumer instances of the REST proxy."""
    rest_proxy_consumer_timeout_s: float = Field(default=300, gt=0)
    """A consumer instance that gets no request for so many seconds ends, and leaves its group."""
    schema_registry: ListenAddress | None = None
    """Address of the schema registry; None: off."""
    pg: ListenAddress | None = None
    """Address for PostgreSQL clients (psql, drivers, BI tools); None: off. With [tls] they must use TLS."""
    executor: Literal["auto", "spark", "duckdb"] | None = None
    """Executor of persistent queries; None: as in `properties`, or auto."""
    properties: dict[str, str] = Field(default_factory=dict)
    """Properties of the engine, and defaults of sessions: see SHOW PROPERTIES."""
    paused: bool = False
    """Start with all persistent queries paused, to inspect and terminate a query that harms the server. RESUME starts
    them one by one; a start without this setting starts them all. In a cluster: the first time that this node runs the
    engine."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of log lines on standard error."""
    log_format: Literal["text", "json"] = "text"
    """Format of log lines: text, or a JSON object per line."""
    tls: TlsSettings | None = None
    """TLS of the HTTP listener."""
    access: AccessSettings | None = None
    """Users and rights; None: everybody who can reach the server may do everything."""
    body_bytes_max: int = Field(default=1 << 20, ge=1024)
    """Limit of the body of an HTTP request."""
    connections_max: int = Field(default=1000, ge=1)
    """Limit of open HTTP connections. Health probes (/livez, /readyz, /healthcheck) over HTTP/1.1 are exempt."""
    connections_per_address_max: int = Field(default=500, ge=1)
    """Limit of them per IPv4 address, or per IPv6 network of 64 bits. Behind a proxy all clients have its address: set
    it to `connections_max` there."""

    pg_connections_max: int = Field(default=1000, ge=1)
    """Limit of open connections of PostgreSQL clients."""
    pg_connections_per_address_max: int = Field(default=500, ge=1)
    """Limit of them per IPv4 address, or per IPv6 network of 64 bits."""

    metrics_partitions_max: int = Field(default=1000, ge=0)
    """With more partitions than this, /metrics has one series per topic instead of one per partition."""

    kafka_produce_bytes: int | None = Field(default=None, ge=1024)
    """Limit per second and client id of bytes produced by Kafka clients; None: none."""
    kafka_fetch_bytes: int | None = Field(default=None, ge=1024)
    """Limit per second and client id of bytes fetched by Kafka clients; None: none."""
    kafka_tls: TlsSettings | None = None
    """TLS of the Kafka listener."""
    kafka_advertised: ListenAddress | None = None
    """Address of this node for Kafka clients; None: its listening address, with its host in `cluster` if it listens on
    all addresses."""
    node: int | None = Field(default=None, ge=1, lt=1 << 31)
    """Number of this node in its cluster; None: a single server."""
    cluster: str | None = None
    """The initial nodes of the cluster, with their addresses for each other: `1@HOST:PORT,2@HOST:PORT,…`."""
    cluster_name: str = "millstream"
    """Name of the cluster: the same on all its nodes, different for each cluster."""
    cluster_secret: SecretStr | None = None
    """Secret that all nodes of the cluster share."""
    cluster_secret_file: Path | None = None
    """File with the secret, instead of `cluster_secret`."""
    cluster_addresses: Literal["registered", "listed"] = "registered"
    """Addresses of the other nodes: the ones that they registered, or always those listed in this node's `cluster`
    (behind proxies or NAT)."""
    join: bool = False
    """Join an existing cluster; `millstream cluster add-node` must have added the node."""
    rack: str | None = None
    """Rack (failure domain) of this node: replicas are spread over racks, and consumers read from their own rack."""
    session_ms: int = Field(default=3000, ge=300, le=600_000)
    """A node that is silent for this long loses its leadership. The same on all nodes."""
    default_replication: int | None = Field(default=None, ge=1)
    """Replication factor of topics that do not set it; None: 3, or the number of nodes if that is smaller."""
    cluster_tls: ClusterTlsSettings | None = None
    """TLS between the nodes of a cluster; None: their traffic is not encrypted."""
    kafka_connections_max: int = Field(default=2000, ge=1)
    """Limit of open connections of Kafka clients. Millstream's own processes are exempt."""
    kafka_connections_per_address_max: int = Field(default=1000, ge=1)
    """Limit of them per IPv4 address, or per IPv6 network of 64 bits (Kafka's max.connections.per.ip). Behind a proxy
    all clients have its address: set it to `kafka_connections_max` there."""
    kafka_auto_create_topics: bool = True
    """Create a missing topic that a Kafka client asks for, with one partition."""
    kafka_fetch_sessions: int = Field(default=1000, ge=0)
    """Limit of fetch sessions (Kafka's max.incremental.fetch.session.cache.slots)."""
    kafka_connections_max_idle_ms: int = Field(default=600_000, ge=1000)
    """Idle connections of Kafka clients are closed after this time (Kafka's connections.max.idle.ms)."""
    offsets_retention_minutes: int = Field(default=7 * 24 * 60, ge=1)
    """Committed offsets of a group without members expire after this time."""
    transactional_id_expiration_ms: int = Field(default=7 * 24 * 60 * 60 * 1000, ge=1000)
    """Unused transactional ids expire after this time."""
    producer_id_expiration_ms: int = Field(default=24 * 60 * 60 * 1000, ge=1000)
    """The state of an idle producer expires after this time."""

    @field_validator("http", "kafka", "schema_registry", "pg", "kafka_advertised", mode="before")
    @classmethod
    def _address(cls, value: object, info: ValidationInfo) -> object:
        if info.field_name == "kafka" and value == EXTERNAL:
            return value
        return value if value is None or isinstance(value, ListenAddress) else ListenAddress.parse(str(value))

    @field_validator("data", mode="before")
    @classmethod
    def _path(cls, value: object) -> object:
        if value == "":  # it would mean the current folder
            raise ValueError("the path is empty")
        if isinstance(value, str) and "\0" in value:
            raise ValueError("the path has a NUL character")
        return value

    @field_validator("properties", mode="before")
    @classmethod
    def _texts(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return checked_properties({name: text_of(item) for name, item in flat(value).items()})

    @field_validator("external", mode="before")
    @classmethod
    def _kafka_properties(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        found = {name: text_of(item) for name, item in flat(value).items()}
        if not found:
            return found
        try:
            KafkaProperties(found)
        except LogError as error:
            raise ValueError(f"{error.message}. {error.hint or ''}".rstrip()) from None
        return found

    @model_validator(mode="after")
    def _an_external_log_is_the_only_one(self) -> Self:
        if (self.kafka == EXTERNAL) != bool(self.external):
            raise ValueError(
                'an external log needs both, kafka = "external" and a table [external] with bootstrap.servers'
            )
        if self.kafka == EXTERNAL and self.node is not None:
            raise ValueError("a node of a cluster has a log of its own: leave out node and cluster, or external")
        return self

    @model_validator(mode="after")
    def _passwords_stay_secret(self) -> Self:
        if self.access is not None and self.tls is None and not (self.http.is_local or self.access.plain_text):
            raise ValueError(
                f"passwords would be sent in plain text to {self.http}: set [tls], or access.plain_text = true if "
                "a proxy terminates TLS"
            )
        kafka = self.kafka_listener
        if self.access is not None and self.kafka_tls is None and kafka is not None:
            if not (kafka.is_local or self.access.plain_text):
                raise ValueError(
                    f"passwords would be sent in plain text to {kafka}: set [kafka_tls], or access.plain_text = true "
                    "where a proxy terminates TLS"
                )
        if self.access is not None and self.tls is None and self.pg is not None:
            if not (self.pg.is_local or self.access.plain_text):
                raise ValueError(
                    f"passwords would be sent in plain text to {self.pg}: set [tls], or access.plain_text = true where "
                    "a proxy terminates TLS"
                )
        registry = self.schema_registry
        if self.access is not None and registry is not None and not (registry.is_local or self.access.plain_text):
            raise ValueError(
                f"passwords would be sent in plain text to the schema registry at {registry}, which has no TLS: give "
                "it an address of this machine, or set access.plain_text = true if a proxy terminates TLS"
            )
        return self

    @model_validator(mode="after")
    def _a_node_has_a_cluster(self) -> Self:
        if (self.node is None) != (self.cluster is None):
            raise ValueError(
                "a node of a cluster needs both, node (its number) and cluster (the nodes): write --node 1 --cluster "
                "1@HOST:PORT,2@HOST:PORT,…"
            )
        if self.cluster_secret is not None and self.cluster_secret_file is not None:
            raise ValueError("cluster_secret and cluster_secret_file exclude each other: set one of them")
        if self.node is not None and self.schema_registry is not None:
            raise ValueError(
                "a node of a cluster has no schema registry: leave schema_registry out, and run a registry beside the "
                "cluster where clients need one"
            )
        if self.node is not None and self.pg is not None:
            raise ValueError(
                "a node of a cluster does not speak PostgreSQL's protocol: leave pg out, and ask the cluster over HTTP"
            )
        return self

    @property
    def kafka_listener(self) -> ListenAddress | None:
        """None if the log is external: then there is no Kafka listener."""
        return self.kafka if isinstance(self.kafka, ListenAddress) else None

    @property
    def external_log(self) -> ExternalLogSettings | None:
        """None if the log is in the data folder. Raises `InvalidKafkaProperty`."""
        if self.kafka_listener is not None:
            return None
        return ExternalLogSettings.of(self.external, ServerSettings.of(self.engine_properties).service_id)

    @property
    def rest_proxy_settings(self) -> RestProxySettings | None:
        """None if the REST proxy is off."""
        if not self.rest_proxy:
            return None
        return RestProxySettings(self.rest_proxy_consumers_max, self.rest_proxy_consumer_timeout_s)

    @property
    def expiry(self) -> ExpiryTimes:
        return ExpiryTimes(
            self.offsets_retention_minutes * 60_000, self.transactional_id_expiration_ms, self.producer_id_expiration_ms
        )

    @property
    def engine_properties(self) -> dict[str, str]:
        """The engine's properties, with the choice of the executor."""
        return self.properties if self.executor is None else {**self.properties, EXECUTOR.name: self.executor}

    def engine_properties_at(self, http: ListenAddress) -> dict[str, str]:
        """The engine's properties with the actual address of the HTTP listener, even if port 0 was configured."""
        return {**self.engine_properties, LISTENERS.name: f"{'http' if self.tls is None else 'https'}://{http}"}

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource, dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:  # fmt: skip
        assert isinstance(init_settings, InitSettingsSource)
        flags = dict(init_settings.init_kwargs)
        from_file = flags.pop("from_file", {})
        return InitSettingsSource(settings_cls, flags), env_settings, InitSettingsSource(settings_cls, from_file)


def load_configuration(file: Path | None, flags: Mapping[str, Any]) -> Configuration:
    """In: `flags`: from the command line; None for flags that were not given. Raises `InvalidConfiguration`."""
    from_file = {} if file is None else translated(_read(file), file)
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Configuration(from_file=from_file, **given)
    except ValidationError as error:
        raise _explained(error, file) from None
    except SettingsError as error:
        raise _no_json(error) from None
    except InvalidProperty as error:
        raise InvalidConfiguration(f"the configuration cannot be used: {error}", hint=error.hint) from None


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The entries of nested tables under dotted names. TOML reads `a.b = 1` as nested tables, but properties have dots
    in their names.

    >>> flat({"auto": {"offset": {"reset": "earliest"}}, "ksql.service.id": "x"})
    {'auto.offset.reset': 'earliest', 'ksql.service.id': 'x'}
    """
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{name}."))
        else:
            found[prefix + name] = value
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidConfiguration(f"the configuration file {file} cannot be read: {reason}") from None
    except ValueError as error:  # also for text that is not UTF-8
        raise InvalidConfiguration(f"the configuration file {file} is not valid TOML: {error}") from None


def translated(table: dict[str, Any], file: Path) -> dict[str, Any]:
    """Replaces ksqlDB's names: `listeners` for the listen address, and `ssl.…` for TLS."""
    found = {name: value for name, value in table.items() if name not in ("listeners", "ssl")}
    found = {name: value for name, value in found.items() if not name.startswith("ssl.")}
    named = {name: value for name, value in table.items() if name == "ssl" or name.startswith("ssl.")}
    try:
        if named:
            found["tls"] = {**with_ksqldb_names(flat(named)), **found.get("tls", {})}
        if "listeners" in table:
            found.setdefault("http", str(table["listeners"]).partition("://")[2].rstrip("/"))
            if str(table["listeners"]).startswith("https:") and "tls" not in found:
                raise ValueError("listeners has https, but there is no certificate: set ssl.keystore.location")
    except ValueError as error:
        raise InvalidConfiguration(f"the configuration file {file} cannot be used: {error}") from None
    return found


def _no_json(error: SettingsError) -> InvalidConfiguration:
    """A variable of the environment is for a table, and its text is not JSON; pydantic-settings names the field."""
    named = _FIELD.search(str(error))
    variable = "a variable of the environment" if named is None else f"{_PREFIX}{named[1].upper()}"
    hint = f'Write an object, as {{"name": "value"}}, or a variable for each member, as {variable}__NAME.'
    return InvalidConfiguration(f"the configuration cannot be used: {variable} is not a JSON object", hint=hint)


def _explained(error: ValidationError, file: Path | None) -> InvalidConfiguration:
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    if not name:
        return InvalidConfiguration(f"the configuration cannot be used: {reason_of(first)}")
    if name == "data" and first["type"] == "missing":
        return InvalidConfiguration("no data folder is given", hint="Add --data DIR, or set MILLSTREAM_DATA.")
    if first["type"] == "extra_forbidden":
        where = "" if file is None else f" in {file}"
        hint = did_you_mean(name, Configuration.model_fields) or "Properties of the engine belong under [properties]."
        return InvalidConfiguration(f'"{name}" is not a setting of the server{where}', hint=hint)
    reason = reason_of(first)
    subject = "it " if reason.startswith("must ") else ""
    return InvalidConfiguration(f'the setting "{name}" cannot be used: {subject}{reason}')
