"""One engine for many tests: starting one costs more than most tests do."""

from __future__ import annotations

import contextlib

from millstream.errors import MillstreamError
from millstream.server.engine.engine import Engine
from millstream.server.engine.session import Session
from millstream.sql.identifiers import quote_identifier


def drop_everything(engine: Engine) -> None:
    """Queries, streams, tables, types and secrets, and the topics behind them."""
    for query_id in list(engine.catalog.queries):
        engine.execute(f"TERMINATE {quote_identifier(query_id)};", Session())
    for source in list(engine.catalog.sources.values()):
        with contextlib.suppress(MillstreamError):  # a test deleted the topic
            engine.log.delete_topic(source.topic)
        engine.execute(f"DROP {source.kind} {quote_identifier(source.name)};", Session())
    for name in list(engine.catalog.secrets):
        engine.execute(f"DROP SECRET {quote_identifier(name)};", Session())
    for name in list(engine.catalog.types):
        engine.execute(f"DROP TYPE {quote_identifier(name)};", Session())
