"""What Millstream's own topics, groups and transactional ids are called on a log that it shares with others.

Everywhere else they have the names that they have on a log of our own, and the external log translates: every name
begins with one prefix, so that one rule of an ACL covers them, and several Millstreams can share the brokers. The
prefix is not `_millstream`: on the Kafka port of another Millstream, names that begin so are reserved for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_OWN: Final = "_millstream-"
_OTHERS: Final = ("_schemas", "default_ksql_processing_log")
"""Ours too, under names that on shared brokers are taken by a schema registry and by ksqlDB."""
_RESERVED: Final = "_millstream"


@dataclass(frozen=True, slots=True)
class ServiceNames:
    """`service_id`: of this Millstream, as in `ksql.service.id`.

    >>> names = ServiceNames("prod_")
    >>> names.topic("_millstream-command"), names.topic("orders"), names.topic("_schemas")
    ('millstream-prod_command', 'orders', 'millstream-prod_schemas')
    >>> names.local_topic("millstream-prod_command"), names.local_topic("orders")
    ('_millstream-command', 'orders')
    >>> names.group("CTAS_TOTALS_3"), ServiceNames("prod").group("_millstream-command-applied")
    ('millstream-prod_query-CTAS_TOTALS_3', 'millstream-prod-command-applied')
    """

    service_id: str

    @property
    def prefix(self) -> str:
        """Ends in something that ends a word: `prod` has nothing in common with `prod2`."""
        return f"millstream-{self.service_id}" + ("-" if self.service_id[-1:].isalnum() else "")

    def topic(self, name: str) -> str:
        """On the brokers."""
        if name.startswith(_OWN):
            return self.prefix + name.removeprefix(_OWN)
        return self.prefix + name.lstrip("_").removeprefix("default_") if name in _OTHERS else name

    def local_topic(self, name: str) -> str | None:
        """Of a topic of the brokers; None where we cannot reach it, or should not."""
        if name.startswith(self.prefix):
            own = name.removeprefix(self.prefix)
            return next((other for other in _OTHERS if self.topic(other) == name), _OWN + own)
        return None if name in _OTHERS or name.startswith(_RESERVED) else name

    def group(self, name: str) -> str:
        """Of a consumer group, or a transactional id, all of which are ours."""
        if name.startswith(_OWN):
            return self.prefix + name.removeprefix(_OWN)
        return f"{self.prefix}query-{name}"
