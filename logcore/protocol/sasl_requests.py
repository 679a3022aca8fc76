"""How a peer shows that it is one of Millstream's own processes: SASL/PLAIN with the log's secret as the password.

Other clients need no authentication; they are not trusted with the topics that Millstream keeps for itself.
"""

from __future__ import annotations

import hmac
from typing import Any

from kio.schema.errors import ErrorCode

from .broker import Broker
from .messages import Fields
from .peer import Peer
from .sasl import MECHANISM, credentials


def sasl_handshake(broker: Broker, request: Any, peer: Peer) -> Fields:
    peer.sasl_chosen = request.mechanism == MECHANISM
    error = ErrorCode.none if peer.sasl_chosen else ErrorCode.unsupported_sasl_mechanism
    return {"error_code": error, "mechanisms": [MECHANISM]}


def sasl_authenticate(broker: Broker, request: Any, peer: Peer) -> Fields:
    if not peer.sasl_chosen:
        return _refused(ErrorCode.illegal_sasl_state, "no mechanism was chosen before")
    peer.sasl_chosen = False
    given = bytes(request.auth_bytes).split(b"\0")
    expected = credentials(broker.log.secret).split(b"\0")
    if len(given) != len(expected) or not hmac.compare_digest(b"\0".join(given[1:]), b"\0".join(expected[1:])):
        return _refused(ErrorCode.sasl_authentication_failed, "user or secret is wrong")
    peer.trusted = True
    return {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": b""}


def _refused(error: ErrorCode, message: str) -> Fields:
    return {"error_code": error, "error_message": message, "auth_bytes": b""}
