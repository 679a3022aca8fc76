"""How a peer authenticates. Millstream's own processes send the log's secret (PLAIN, user `millstream`); users send
their password (PLAIN), or prove that they know it (SCRAM). If there are no users, other clients need not authenticate.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING

import structlog

from ...error_codes import ErrorCode
from ..kafka_service import Desk
from ..security.peer import Peer
from ..security.sasl import PLAIN, USER, decode_plain
from ..security.scram import DIGESTS, ScramRefused, ScramServer
from ..security.users import Principal
from ..wire.messages import Fields
from .scram_requests import KeptUsers

if TYPE_CHECKING:
    from .request_shapes import (
        SaslAuthenticateRequest,
        SaslHandshakeRequest,
    )

_log = structlog.get_logger("millstream.logcore")


def sasl_handshake(broker: Desk, request: SaslHandshakeRequest, peer: Peer) -> Fields:
    users = broker.settings.users
    mechanisms = [PLAIN] if users is None else [PLAIN, *DIGESTS]
    peer.sasl = None
    if request.mechanism == PLAIN:
        peer.sasl = PLAIN
    elif users is not None and request.mechanism in DIGESTS:
        peer.sasl = ScramServer(
            request.mechanism, KeptUsers(users, broker.log), secrets.token_urlsafe(24), broker.salt_secret
        )
    error = ErrorCode.unsupported_sasl_mechanism if peer.sasl is None else ErrorCode.none
    return {"error_code": error, "mechanisms": mechanisms}


def sasl_authenticate(broker: Desk, request: SaslAuthenticateRequest, peer: Peer) -> Fields:
    """After a failure, the connection answers nothing more."""
    chosen, message = peer.sasl, bytes(request.auth_bytes)
    if chosen is None:
        return _answer(ErrorCode.illegal_sasl_state, "no mechanism was chosen before")
    if isinstance(chosen, ScramServer):
        try:
            answer = chosen.step(message)
        except ScramRefused as error:
            return _refused(peer, str(error))
        if chosen.user is not None:
            _let_in(peer, chosen.user)
        return _answer(ErrorCode.none, None, answer)
    given = decode_plain(message)
    if given is not None and given.name == USER and _fits(given.password, broker.log.secret):
        peer.trusted, peer.sasl = True, None
        return _answer(ErrorCode.none)
    user = None
    if given is not None and broker.settings.users is not None:
        user = broker.settings.users.with_password(*given)
    if user is None:
        return _refused(peer, "user or password is wrong")
    _let_in(peer, user)
    return _answer(ErrorCode.none)


def _fits(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.encode())


def _let_in(peer: Peer, user: Principal) -> None:
    peer.user, peer.sasl = user, None


def _refused(peer: Peer, message: str) -> Fields:
    _log.warning("kafka login refused", peer=str(peer), reason=message)
    peer.sasl, peer.refused = None, True
    return _answer(ErrorCode.sasl_authentication_failed, message)


def _answer(error: ErrorCode, message: str | None = None, content: bytes = b"") -> Fields:
    return {"error_code": error, "error_message": message, "auth_bytes": content}
