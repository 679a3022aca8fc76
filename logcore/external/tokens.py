"""Sources of bearer tokens: a token endpoint (OAuth 2, client credentials), or tokens without a signature."""

from __future__ import annotations

import base64
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Final

from ..errors import LogUnavailable
from .kept_tokens import KeptToken

_ANSWERS_WITHIN_S: Final = 30.0
_ANSWER_BYTES_MAX: Final = 1 << 20
_LIVES_S: Final = 3600
_UNSECURED: Final = "unsecuredLoginStringClaim_"


def token_source(options: Mapping[str, str], endpoint: str | None) -> Callable[[], str]:
    """Returns a function that gives a token. In: `options`: those of sasl.jaas.config. Raises ValueError if one is
    missing."""
    if endpoint:
        if not endpoint.startswith(("https://", "http://")):
            raise ValueError("sasl.oauthbearer.token.endpoint.url is not an https:// URL")
        missing = [name for name in ("clientId", "clientSecret") if not options.get(name)]
        if missing:
            raise ValueError(f"sasl.jaas.config has no {' and no '.join(missing)}")
        return KeptToken(_Endpoint(endpoint, options["clientId"], options["clientSecret"], options.get("scope")))
    subject = options.get(f"{_UNSECURED}sub")
    if subject is None:
        raise ValueError("set sasl.oauthbearer.token.endpoint.url, and clientId and clientSecret in sasl.jaas.config")
    return lambda: unsecured_token(subject)


def unsecured_token(subject: str) -> str:
    """A token without a signature, which brokers accept if they are set up for tests."""
    now = int(time.time())
    parts = {"alg": "none"}, {"sub": subject, "iat": now, "exp": now + _LIVES_S}
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


class _Endpoint:
    """Gives a new token with each call, and for how many seconds it is valid."""

    def __init__(self, endpoint: str, client_id: str, client_secret: str, scope: str | None) -> None:
        self._endpoint = endpoint
        login = f"{urllib.parse.quote(client_id, '')}:{urllib.parse.quote(client_secret, '')}"
        self._authorization = "Basic " + base64.b64encode(login.encode()).decode()
        self._form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}

    def __call__(self) -> tuple[str, float]:
        request = urllib.request.Request(
            self._endpoint,
            urllib.parse.urlencode(self._form).encode(),
            {"Authorization": self._authorization, "Accept": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_ANSWERS_WITHIN_S) as response:
                answer = json.loads(response.read(_ANSWER_BYTES_MAX))
            return str(answer["access_token"]), float(answer.get("expires_in", 60))
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            raise LogUnavailable(
                f"the token endpoint {self._endpoint} gives no token: {error}",
                hint="Check sasl.oauthbearer.token.endpoint.url, clientId and clientSecret.",
            ) from error
