"""How to connect to brokers, in the properties of Kafka's clients."""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.errors import LogError

from ..protocol.channel import Address
from ..protocol.security.logins import OAUTHBEARER, ScramLogin, TokenLogin
from ..protocol.security.sasl import PLAIN, Credentials, Login
from ..protocol.security.scram import DIGESTS
from .aws_tokens import aws_token_source
from .tokens import token_source

BOOTSTRAP: Final = "bootstrap.servers"
PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
JAAS: Final = "sasl.jaas.config"
TRANSACTION_TIMEOUT_MS: Final = "transaction.timeout.ms"
REPLICATION_FACTOR: Final = "replication.factor"
IN_SYNC_MIN: Final = "min.insync.replicas"
PROCESSING_LOG_RETENTION_MS: Final = "processing.log.retention.ms"

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_AWS: Final = "AWS_MSK_IAM"
_MECHANISMS: Final = (PLAIN, *DIGESTS, OAUTHBEARER, _AWS)
_LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
_CLIENT_HANDLER: Final = "sasl.client.callback.handler.class"
_AWS_HANDLERS: Final = tuple(
    f"software.amazon.msk.auth.iam.{name}"
    for name in ("IAMOAuthBearerLoginCallbackHandler", "IAMClientCallbackHandler")
)
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_ENDPOINT_HANDLERS: Final = tuple(f"{_OAUTH}.{name}" for name in (
    "OAuthBearerLoginCallbackHandler", "secured.OAuthBearerLoginCallbackHandler",
))  # fmt: skip

_DOCS: Final[Mapping[str, str]] = {
    BOOTSTRAP: "The brokers, HOST:PORT,HOST:PORT; some of them are enough to find the others.",
    PROTOCOL: f"{', '.join(_PROTOCOLS)}. Default PLAINTEXT.",
    MECHANISM: f"{', '.join(_MECHANISMS)}. Default PLAIN.",
    JAAS: 'As Kafka\'s clients have it: `… required username="…" password="…";`, with clientId and clientSecret for'
    " OAUTHBEARER, awsProfileName or awsRoleArn for AWS_MSK_IAM.",
    "sasl.username": "In the place of sasl.jaas.config, as librdkafka has it.",
    "sasl.password": "In the place of sasl.jaas.config, as librdkafka has it.",
    "sasl.oauthbearer.token.endpoint.url": "Where OAUTHBEARER gets its tokens (client credentials).",
    _LOGIN_HANDLER: f"A class of Java that gives tokens: {_ENDPOINT_HANDLERS[0]} asks the token endpoint, and with"
    f" {_AWS_HANDLERS[0]} OAUTHBEARER is AWS_MSK_IAM.",
    _CLIENT_HANDLER: f"For AWS_MSK_IAM: {_AWS_HANDLERS[1]}.",
    "ssl.truststore.location": "PEM file with the certificates that sign the brokers' certificates. Default: the"
    " system's.",
    "ssl.truststore.certificates": "The same as text.",
    "ssl.truststore.type": "PEM.",
    "ssl.keystore.location": "PEM file with the certificate chain and the key of this client (mutual TLS).",
    "ssl.keystore.certificate.chain": "The certificate chain as text.",
    "ssl.keystore.key": "The key as text.",
    "ssl.keystore.type": "PEM.",
    "ssl.keystore.password": "Password of an encrypted key.",
    "ssl.key.password": "Password of an encrypted key.",
    "ssl.endpoint.identification.algorithm": "https (default), or empty: the name of a broker is not checked.",
    TRANSACTION_TIMEOUT_MS: "After this time a broker aborts a transaction that is still open. Default 60000; the"
    " brokers' transaction.max.timeout.ms is the upper bound.",
    REPLICATION_FACTOR: "Replication factor of the topics that Millstream creates. Default: the brokers'"
    " default.replication.factor.",
    IN_SYNC_MIN: "min.insync.replicas of Millstream's own topics. Default: the brokers' own.",
    PROCESSING_LOG_RETENTION_MS: "Retention of the processing log. Default 604800000, a week; -1: forever.",
}

_ESCAPED: Final = re.compile(r"\\([\"\\])")
_OPTION: Final = re.compile(r"([A-Za-z_.]\w*)\s*=\s*\"((?:[^\"\\]|\\.)*)\"")


class InvalidKafkaProperty(LogError):
    """An unknown property, or an invalid value."""

    code = "INVALID_KAFKA_PROPERTY"


def documented() -> Mapping[str, str]:
    """All supported properties, and what each one means."""
    return _DOCS


@dataclass(frozen=True, slots=True)
class KafkaProperties:
    """Properties that were checked. It raises `InvalidKafkaProperty`, as do methods if a file or value is invalid."""

    values: Mapping[str, str]

    def __post_init__(self) -> None:
        for name in self.values:
            if name not in _DOCS:
                raise InvalidKafkaProperty(
                    f'"{name}" is not a property of the connection to the brokers',
                    hint=f"There are {', '.join(_DOCS)}.",
                )
        self._one_of(PROTOCOL, _PROTOCOLS)
        self._one_of(MECHANISM, _MECHANISMS)
        self._one_of(_LOGIN_HANDLER, (*_ENDPOINT_HANDLERS, _AWS_HANDLERS[0]), "Other Java code cannot be called.")
        self._one_of(_CLIENT_HANDLER, (_AWS_HANDLERS[1],), "Other Java code cannot be called.")
        for store in ("ssl.truststore.type", "ssl.keystore.type"):
            self._one_of(store, ("PEM",), "Convert the store to PEM: openssl pkcs12, or keytool -exportcert -rfc.")
        self.addresses()
        self.login()
        self.number(TRANSACTION_TIMEOUT_MS, 60_000, 1_000)
        self.number(REPLICATION_FACTOR, -1, -1)
        self.number(IN_SYNC_MIN, 1, 1)
        self.number(PROCESSING_LOG_RETENTION_MS, 7 * 24 * 60 * 60 * 1000, -1)

    def addresses(self) -> list[Address]:
        found: list[Address] = []
        for text in self.values.get(BOOTSTRAP, "").split(","):
            host, _, port = text.strip().rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65536:
                raise InvalidKafkaProperty(
                    f'{BOOTSTRAP} "{self.values.get(BOOTSTRAP, "")}" names no brokers',
                    hint="Write HOST:PORT, or several with commas between them.",
                )
            found.append(Address(host.strip("[]"), int(port)))
        return found

    def number(self, name: str, default: int, least: int) -> int:
        text = self.values.get(name, str(default)).strip()
        if not re.fullmatch(r"-?\d{1,18}", text) or int(text) < least:
            raise InvalidKafkaProperty(f"{name} is {text}", hint=f"It is a whole number, at least {least}.")
        return int(text)

    def login(self) -> Login | None:
        """None if the brokers do not authenticate clients, or do so by their certificates."""
        if not self._protocol.startswith("SASL_"):
            return None
        options = self._jaas_options()
        mechanism = self.values.get(MECHANISM, PLAIN)
        if mechanism in (OAUTHBEARER, _AWS):
            try:
                return TokenLogin(self._tokens(mechanism, options))
            except ValueError as error:
                raise InvalidKafkaProperty(f"{MECHANISM} {mechanism} lacks something: {error}") from None
        name = self.values.get("sasl.username", options.get("username"))
        password = self.values.get("sasl.password", options.get("password"))
        if not name or password is None:
            raise InvalidKafkaProperty(
                f"{PROTOCOL} {self._protocol} needs a user and a password",
                hint=f"Set {JAAS}, or sasl.username and sasl.password.",
            )
        return Credentials(name, password) if mechanism == PLAIN else ScramLogin(mechanism, name, password)

    def _tokens(self, mechanism: str, options: Mapping[str, str]) -> Callable[[], str]:
        """Raises ValueError if something is missing."""
        if mechanism != _AWS and self.values.get(_LOGIN_HANDLER) not in _AWS_HANDLERS:
            return token_source(options, self.values.get("sasl.oauthbearer.token.endpoint.url"))
        if self._protocol != "SASL_SSL":
            raise ValueError(f"the signature would be sent in clear text: {PROTOCOL} must be SASL_SSL")
        return aws_token_source(options, self.addresses())

    def tls(self) -> ssl.SSLContext | None:
        """None if the connection is not encrypted."""
        if not self._protocol.endswith("SSL"):
            return None
        context = ssl.create_default_context()
        if self.values.get("ssl.endpoint.identification.algorithm", "https") == "":
            context.check_hostname = False
        try:
            self._trust(context)
            self._show_certificate(context)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise InvalidKafkaProperty(
                f"the certificates of the connection to the brokers cannot be used: {error}",
                hint="Give PEM files; keytool and openssl convert JKS and PKCS#12 stores.",
            ) from None
        return context

    def _trust(self, context: ssl.SSLContext) -> None:
        file, text = self.values.get("ssl.truststore.location"), self.values.get("ssl.truststore.certificates")
        if file or text:
            context.load_verify_locations(cafile=file or None, cadata=text or None)

    def _show_certificate(self, context: ssl.SSLContext) -> None:
        # Never None, or OpenSSL would ask for a password at the terminal.
        password = self.values.get("ssl.key.password", self.values.get("ssl.keystore.password", ""))
        file, chain = self.values.get("ssl.keystore.location"), self.values.get("ssl.keystore.certificate.chain")
        if file:
            context.load_cert_chain(file, password=lambda: password)
        elif chain:
            with tempfile.TemporaryDirectory() as folder:  # OpenSSL reads only files; others cannot read this folder
                pem = Path(folder, "client.pem")
                pem.touch(mode=0o600)
                pem.write_text(f"{chain}\n{self.values.get('ssl.keystore.key', '')}\n")
                context.load_cert_chain(pem, password=lambda: password)

    @property
    def _protocol(self) -> str:
        return self.values.get(PROTOCOL, "PLAINTEXT")

    def _jaas_options(self) -> dict[str, str]:
        found = _OPTION.findall(self.values.get(JAAS, ""))
        return {name: _ESCAPED.sub(r"\1", value) for name, value in found}

    def _one_of(self, name: str, values: tuple[str, ...], hint: str | None = None) -> None:
        if name in self.values and self.values[name] not in values:
            raise InvalidKafkaProperty(
                f'{name} is "{self.values[name]}"', hint=hint or f"It is one of {', '.join(values)}."
            )
