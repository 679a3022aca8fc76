"""The routes of the REST proxy on an HTTP server."""

from __future__ import annotations

from starlette.routing import Route

from ..http.context import HttpContext
from .consumer_instances import ConsumerInstances
from .named_schemas import NamedSchemas
from .producing import ProxiedWriter
from .proxied_log import ProxiedLog
from .proxy_settings import RestProxySettings
from .reading import InstanceReader
from .v2_consumers import V2Consumers
from .v2_topics import V2Topics
from .v3_acls import V3Acls
from .v3_broker_settings import V3BrokerSettings
from .v3_cluster import V3Cluster
from .v3_groups import V3Groups
from .v3_records import RecordProducer, V3Records
from .v3_resources import Clusters
from .v3_topics import V3Topics


def rest_proxy_routes(context: HttpContext, settings: RestProxySettings) -> list[Route]:
    """The routes of `proxy_paths.py`. They are closed with the context."""
    engine = context.engine
    log, schemas = ProxiedLog(engine), NamedSchemas(engine.schemas, engine.lock)
    writer = ProxiedWriter(log.log)
    instances = ConsumerInstances(log.log, settings)
    consumers = V2Consumers(context, log, instances, InstanceReader(log, schemas.record_schema))
    clusters = Clusters(context, log)
    context.closing.append(consumers.close)
    return [
        *V2Topics(context, log, schemas, writer).routes(),
        *consumers.routes(),
        *V3BrokerSettings(context, log, clusters).routes(),  # first: V3Cluster reads `-` as a number
        *V3Acls(context, log, clusters).routes(),
        *V3Cluster(context, log, clusters).routes(),
        *V3Records(context, RecordProducer(log, schemas, writer, clusters)).routes(),
        *V3Topics(context, log, clusters).routes(),
        *V3Groups(context, log, clusters).routes(),
    ]
