"""TLS of the listeners: certificates in PEM files, also for verifying clients."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

from hypercorn.config import Config
from pydantic import BaseModel, ConfigDict, SecretStr, model_validator

from millstream.errors import ServerError

ClientCertificates = Literal["none", "optional", "required"]

_VERIFY: Final[Mapping[ClientCertificates, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

_ALIASES: Final = {
    "ssl.keystore.location": ("certificate", "key"),
    "ssl.keystore.password": ("key_password",),
    "ssl.key.password": ("key_password",),
    "ssl.truststore.location": ("client_ca",),
    "ssl.client.authentication": ("client_certificates",),
}
_STORE_TYPES: Final = ("ssl.keystore.type", "ssl.truststore.type")
_ASKED: Final = {"none": "none", "requested": "optional", "required": "required"}


class CannotUseTls(ServerError):
    """A certificate or a key cannot be used."""

    code = "CANNOT_USE_TLS"


class TlsSettings(BaseModel):
    """[tls] of the configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    certificate: Path
    """PEM file with the certificate chain, the server's certificate first."""
    key: Path
    """PEM file with the key; it may be the same file."""
    key_password: SecretStr | None = None
    """Password of an encrypted key."""
    client_ca: Path | None = None
    """PEM file with the certificates that sign client certificates."""
    client_certificates: ClientCertificates | None = None
    """Whether clients must present a certificate. Default with client_ca: required."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.client_ca is None and self.verified != "none":
            raise ValueError("client_certificates requires client_ca, which signs them")
        return self

    @property
    def verified(self) -> ClientCertificates:
        return self.client_certificates or ("none" if self.client_ca is None else "required")

    def context(self) -> ssl.SSLContext:
        """The context of a listener other than HTTP. Raises `CannotUseTls`."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.num_tickets = 0  # session tickets make the connection readable for clients that do not expect data yet
        # Never None: OpenSSL would ask for a password at the terminal.
        password = "" if self.key_password is None else self.key_password.get_secret_value()
        try:
            context.load_cert_chain(self.certificate, self.key, lambda: password)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
        except OSError as error:  # ssl.SSLError is one
            raise _unusable(error, self.certificate, self.key, self.client_ca) from None
        context.verify_mode = _VERIFY[self.verified]
        return context

    def connecting(self) -> ssl.SSLContext:
        """The context for connections to other nodes of the cluster. It presents this certificate, and trusts nodes
        whose certificates are signed by the system's authorities, this certificate's file or `client_ca`. Raises
        `CannotUseTls`."""
        context = ssl.create_default_context()
        password = "" if self.key_password is None else self.key_password.get_secret_value()
        try:
            context.load_cert_chain(self.certificate, self.key, lambda: password)
            for file in (self.certificate, self.client_ca):
                if file is not None:
                    context.load_verify_locations(file)
        except OSError as error:
            raise _unusable(error, self.certificate, self.key, self.client_ca) from None
        return context

    def apply(self, config: Config) -> None:
        """Raises `CannotUseTls`."""
        config.certfile, config.keyfile = str(self.certificate), str(self.key)
        # Never None: OpenSSL would ask for a password at the terminal.
        config.keyfile_password = "" if self.key_password is None else self.key_password.get_secret_value()
        config.ca_certs = None if self.client_ca is None else str(self.client_ca)
        config.verify_mode = _VERIFY[self.verified]
        try:
            config.create_ssl_context()
        except OSError as error:  # ssl.SSLError is one
            raise _unusable(error, self.certificate, self.key, self.client_ca) from None


class ClusterTlsSettings(BaseModel):
    """[cluster_tls] of the configuration: between the nodes of a cluster. Both sides present a certificate."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    certificate: Path
    """PEM file with the certificate chain, this node's certificate first."""
    key: Path
    """PEM file with the key; it may be the same file."""
    key_password: SecretStr | None = None
    """Password of an encrypted key."""
    ca: Path
    """PEM file with the certificates that sign only the certificates of the nodes."""

    def serving(self) -> ssl.SSLContext:
        """The context for nodes that connect to this one. Raises `CannotUseTls`."""
        return self._context(ssl.Purpose.CLIENT_AUTH)

    def connecting(self) -> ssl.SSLContext:
        """The context for connections to other nodes. Host names are not checked: the authority signs only for nodes,
        and each node proves its identity with the cluster's secret. Raises `CannotUseTls`."""
        return self._context(ssl.Purpose.SERVER_AUTH)

    def _context(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        password = "" if self.key_password is None else self.key_password.get_secret_value()
        try:
            context = ssl.create_default_context(purpose, cafile=str(self.ca))
            context.check_hostname = False
            context.verify_mode = ssl.CERT_REQUIRED
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            # Never None: OpenSSL would ask for a password at the terminal.
            context.load_cert_chain(self.certificate, self.key, lambda: password)
        except OSError as error:  # ssl.SSLError is one
            raise _unusable(error, self.certificate, self.key, self.ca) from None
        return context


def _unusable(error: OSError, *files: Path | None) -> CannotUseTls:
    """OpenSSL does not say which file it cannot read."""
    for file in files:
        try:
            if file is not None:
                file.open("rb").close()
        except OSError as unreadable:
            reason = (unreadable.strerror or str(unreadable)).lower()
            return CannotUseTls(f"the certificate or the key cannot be used: {file}: {reason}")
    return CannotUseTls(
        f"the certificate or the key cannot be used: {error.strerror or error}",
        hint="The files need PEM text: the certificate chain, and its key.",
    )


def with_ksqldb_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the `ssl.…` names of ksqlDB to members of `tls`, for PEM stores. In: a configuration by flat names.

    >>> with_ksqldb_names({"ssl.keystore.location": "a.pem", "ssl.keystore.type": "PEM"})
    {'certificate': 'a.pem', 'key': 'a.pem'}
    """
    members: dict[str, Any] = {}
    for name, value in given.items():
        if name in _STORE_TYPES:
            if str(value).upper() != "PEM":
                raise ValueError(f"{name} is {value}, and only PEM can be read: convert it with keytool and openssl")
        elif name in _ALIASES:
            for member in _ALIASES[name]:
                members[member] = _ASKED.get(str(value).lower(), value) if member == "client_certificates" else value
        else:
            raise ValueError(f"{name} is unknown")
    return members
