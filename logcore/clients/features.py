"""Finds out the `LogCapabilities` of a server, from the features in its answer to ApiVersions."""

from __future__ import annotations

from typing import Final

from ..capabilities import FEATURE, KAFKA, MILLSTREAM, LogCapabilities
from ..protocol.routing import Router
from ..protocol.wire.apis import Api

_WHO_ASKS: Final = {"client_software_name": "millstream", "client_software_version": "1"}


def capabilities_of(router: Router) -> LogCapabilities:
    """Asks one node. Raises `LogUnavailable`."""
    answer = router.ask(Api.API_VERSIONS, _WHO_ASKS)
    features = {feature.name for feature in getattr(answer, "supported_features", ())}
    return MILLSTREAM if FEATURE in features else KAFKA
