"""The names of Millstream's own topics, groups and transactional ids on a log that it shares with others.

Elsewhere they have the same names as on a log of our own, and the external log translates. On the brokers all names
begin with one prefix, so that one rule of an ACL covers them, and several Millstreams can share the brokers. The prefix
is not `_millstream`, because another Millstream reserves names that begin like this for itself on its Kafka port.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_OWN: Final = "_millstream-"
_OTHERS: Final = ("_schemas", "default_ksql_processing_log")
"""Topics that are also ours, but whose names on shared brokers belong to a schema registry and ksqlDB."""
_RESERVED: Final = "_millstream"
RESERVED_THERE: Final = "millstream-"
"""How the names of every Millstream begin on shared brokers."""


@dataclass(frozen=True, slots=True)
class ServiceNames:
    """`service_id`: that of this Millstream, as in `ksql.service.id`.

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
        """Always ends with a separator, so that the names of `prod2` do not begin with the prefix of `prod`."""
        return f"{RESERVED_THERE}{self.service_id}" + ("-" if self.service_id[-1:].isalnum() else "")

    def topic(self, name: str) -> str:
        """The name of a topic on the brokers."""
        if name.startswith(_OWN):
            return self.prefix + name.removeprefix(_OWN)
        return self.prefix + name.lstrip("_").removeprefix("default_") if name in _OTHERS else name

    def local_topic(self, name: str) -> str | None:
        """The name here for a topic on the brokers; None if we cannot or should not use it."""
        if name.startswith(self.prefix):
            own = name.removeprefix(self.prefix)
            return next((other for other in _OTHERS if self.topic(other) == name), _OWN + own)
        return None if name in _OTHERS or name.startswith((_RESERVED, RESERVED_THERE)) else name

    def group(self, name: str) -> str:
        """The name on the brokers for a consumer group or transactional id of ours."""
        if name.startswith(_OWN):
            return self.prefix + name.removeprefix(_OWN)
        return f"{self.prefix}query-{name}"
