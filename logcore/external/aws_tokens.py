"""Bearer tokens of Amazon MSK's IAM authentication, made by AWS's signer (`aws-msk-iam-sasl-signer-python`).

Java's clients call the mechanism AWS_MSK_IAM. Brokers of MSK accept the same signatures as tokens of OAUTHBEARER at the
same port, as clients in all other languages send them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Final

from ..errors import LogUnavailable
from ..protocol.channel import Address
from .kept_tokens import KeptToken

PROFILE: Final = "awsProfileName"
ROLE: Final = "awsRoleArn"
SESSION: Final = "awsRoleSessionName"
OPTIONS: Final = (PROFILE, ROLE, SESSION)
"""Options of sasl.jaas.config, as AWS's login module for Java has them. Without them the credentials come from where
AWS's tools look for them: the environment, ~/.aws, the machine's role."""

_SESSION_BY_DEFAULT: Final = "millstream"
_REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_BROKER: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z]{2,}(?:-[a-z]+)+-\d+)\.amazonaws\.com(?:\.cn)?\.?$", re.I)

_Signed = tuple[str, int]  # the token, and when it expires, in ms since 1970


def aws_token_source(options: Mapping[str, str], brokers: Iterable[Address]) -> Callable[[], str]:
    """Returns a function that gives a token; it raises `LogUnavailable` if there are no credentials. In: `options`:
    those of sasl.jaas.config. Raises ValueError if they are contradictory, if the region is not known, or if the signer
    is not installed."""
    profile, role = options.get(PROFILE), options.get(ROLE)
    if profile and role:
        raise ValueError(f"sasl.jaas.config has {PROFILE} and {ROLE}: set one of them")
    sign = _signer(_region_of(brokers), profile, role, options.get(SESSION) or _SESSION_BY_DEFAULT)

    def ask() -> tuple[str, float]:
        try:
            token, expires_ms = sign()
        except Exception as error:  # of botocore, which has no class of its own for all of them
            raise LogUnavailable(
                f"AWS gives no credentials for the brokers: {error}",
                hint="Check the environment (AWS_ACCESS_KEY_ID …), ~/.aws, the machine's role, or sasl.jaas.config.",
            ) from error
        return token, expires_ms / 1000 - time.time()

    return KeptToken(ask)


def _signer(region: str, profile: str | None, role: str | None, session: str) -> Callable[[], _Signed]:
    try:
        signer = import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")  # it takes boto3, and half a second
    except ImportError:
        raise ValueError("AWS's signer is not installed (pip install 'millstream[msk]')") from None
    if profile:
        return lambda: signer.generate_auth_token_from_profile(region, profile)
    if role:
        return lambda: signer.generate_auth_token_from_role_arn(region, role, session)
    return lambda: signer.generate_auth_token(region)


def _region_of(brokers: Iterable[Address]) -> str:
    """The region in a broker's name (`b-1.….kafka.eu-west-1.amazonaws.com`), or that of the environment: brokers behind
    a private link may have other names."""
    found = next((match[1] for broker in brokers if (match := _BROKER.search(broker.host))), None)
    region = found or next((os.environ[name] for name in _REGION_VARIABLES if os.environ.get(name)), None)
    if not region:
        raise ValueError(f"the names of the brokers do not tell their region: set {_REGION_VARIABLES[0]}")
    return region.lower()
