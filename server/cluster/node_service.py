"""A server that is a node of a cluster: its settings, the node and its Kafka listener."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from ...logcore.cluster.cluster_node import ClusterNode
from ...logcore.cluster.serving import ServedNode, served
from ...logcore.cluster.settings import ClusterSettings, parse_members
from ...logcore.replication.machine import NodeId
from ...logcore.server import LogServer
from ..config.configuration import Configuration, InvalidConfiguration, ListenAddress
from ..kafka_listener import kafka_listener
from ..security.access import Authenticator

_EVERYWHERE: Final = ("0.0.0.0", "::", "")
_SECRET_HINT: Final = "Set cluster_secret, or cluster_secret_file, to the same text on all nodes."
_log = structlog.get_logger("millstream.server")


def cluster_settings(configuration: Configuration) -> ClusterSettings:
    """The settings of a configuration that names a node. Raises `InvalidCluster`, `InvalidConfiguration`,
    `CannotUseTls`."""
    assert configuration.node is not None and configuration.cluster is not None
    tls, secret = configuration.cluster_tls, _secret(configuration)
    if configuration.access is not None and not secret:
        raise InvalidConfiguration(
            "a cluster with users has no secret: anybody who can reach a node could act as a node",
            hint=_SECRET_HINT,
        )
    return ClusterSettings(
        folder=configuration.data / "log",
        node=NodeId(configuration.node),
        members=parse_members(configuration.cluster),
        name=configuration.cluster_name,
        secret=secret,
        rack=configuration.rack,
        session_ms=configuration.session_ms,
        replication=configuration.default_replication,
        joins=configuration.join,
        addresses_listed=configuration.cluster_addresses == "listed",
        serving=None if tls is None else tls.serving(),
        connecting=None if tls is None else tls.connecting(),
        expiry=configuration.expiry,
    )


def _secret(configuration: Configuration) -> bytes:
    """The cluster's secret; empty if there is none: then anybody who can reach the nodes can act as a node."""
    if configuration.cluster_secret is not None:
        secret = configuration.cluster_secret.get_secret_value().strip().encode()
        if not secret:
            raise InvalidConfiguration("cluster_secret is empty", hint=_SECRET_HINT)
        return secret
    path = configuration.cluster_secret_file
    if path is None:
        return b""
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidConfiguration(f"the file {path} with the cluster's secret cannot be read: {reason}") from None
    if not secret:
        raise InvalidConfiguration(f"the file {path} with the cluster's secret is empty", hint=_SECRET_HINT)
    return secret


class StartedNode(NamedTuple):
    node: ClusterNode
    served: ServedNode
    kafka: LogServer


def start_node(
    configuration: Configuration,
    http: ListenAddress,
    users: Authenticator | None,
    parts: contextlib.ExitStack,
    panicked: Callable[[str], None],
) -> StartedNode:
    """Starts the node and its Kafka listener; both run when it returns. `parts` ends them: the node hands over its
    leadership first.

    In: `http`: the address of this node's HTTP listener. `panicked`: as in `ClusterNode`. Raises `LogError`,
    `ServerError`.
    """
    settings = cluster_settings(configuration)
    _warn(settings)
    node = ClusterNode(settings, panicked)
    parts.callback(node.stop)
    parts_of_node = served(node)
    kafka = kafka_listener(parts_of_node.serving, configuration, users)
    kafka.start()
    parts.callback(kafka.stop)
    assert configuration.kafka_listener is not None
    advertised = configuration.kafka_advertised or reached_at(
        ListenAddress(configuration.kafka_listener.host, kafka.port), settings
    )
    node.start((("kafka", str(advertised)), ("http", str(reached_at(http, settings)))))
    parts.callback(node.end)  # before the listener stops: it waits for produce requests, which may wait for other nodes
    parts.callback(node.leave)
    return StartedNode(node, parts_of_node, kafka)


def reached_at(listening: ListenAddress, settings: ClusterSettings) -> ListenAddress:
    """The address under which others reach a listener: if it listens on all addresses, the node's host in the list of
    members."""
    if listening.host not in _EVERYWHERE:
        return listening
    return ListenAddress(settings.members[settings.node].host, listening.port)


def _warn(settings: ClusterSettings) -> None:
    outside = [
        str(ListenAddress(*address)) for address in settings.members.values() if not ListenAddress(*address).is_local
    ]
    if outside and not settings.secret:
        _log.warning(
            "the cluster has no secret: anybody who can reach its nodes can read and write everything",
            hint=_SECRET_HINT,
            addresses=outside,
        )
    if outside and settings.serving is None:
        _log.warning("the traffic between the nodes of the cluster is not encrypted", hint="Set [cluster_tls].")
