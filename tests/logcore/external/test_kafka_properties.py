"""Properties of the connection to brokers, under Kafka's names."""

from __future__ import annotations

import pytest

from millstream.logcore.external.kafka_properties import InvalidKafkaProperty, KafkaProperties
from millstream.logcore.protocol.channel import Address
from millstream.logcore.protocol.security.logins import ScramLogin, TokenLogin
from millstream.logcore.protocol.security.sasl import Credentials

_JAAS = "org.apache.kafka.common.security.{}LoginModule required"


def of(**given: str) -> KafkaProperties:
    return KafkaProperties({"bootstrap.servers": "a:9092", **{key.replace("_", "."): v for key, v in given.items()}})


def test_brokers_are_named_as_kafka_has_it() -> None:
    assert of(bootstrap_servers="a:1, [::1]:2").addresses() == [Address("a", 1), Address("::1", 2)]
    assert of().login() is None
    assert of().tls() is None


def test_logins_are_taken_from_jaas_or_from_librdkafkas_names() -> None:
    jaas = f'{_JAAS.format("scram.Scram")} username="ana" password="se\\"sa\\\\me";'
    scram = of(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=jaas).login()
    assert isinstance(scram, ScramLogin)
    assert (scram.mechanism, scram.name, scram.password) == ("SCRAM-SHA-512", "ana", 'se"sa\\me')
    assert scram.password not in repr(scram)
    plain = of(security_protocol="SASL_PLAINTEXT", sasl_username="ana", sasl_password="x").login()
    assert plain == Credentials("ana", "x")
    token = of(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config=f'{_JAAS.format("oauthbearer.OAuthBearer")} unsecuredLoginStringClaim_sub="ana";',
    ).login()
    assert isinstance(token, TokenLogin)


@pytest.mark.parametrize("handler", ["OAuthBearerLoginCallbackHandler", "secured.OAuthBearerLoginCallbackHandler"])
def test_kafkas_own_handler_of_token_endpoints_is_what_is_done_anyway(handler: str) -> None:
    token = of(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config=f'{_JAAS.format("oauthbearer.OAuthBearer")} clientId="ms" clientSecret="x";',
        sasl_oauthbearer_token_endpoint_url="https://tokens.example/token",
        sasl_login_callback_handler_class=f"org.apache.kafka.common.security.oauthbearer.{handler}",
    ).login()
    assert isinstance(token, TokenLogin)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bootstrap_servers": "broker"}, "names no brokers"),
        ({"security_protocol": "TLS"}, "security.protocol"),
        ({"security_protocol": "SASL_SSL"}, "needs a user"),
        ({"sasl_mechanism": "GSSAPI"}, "GSSAPI"),
        ({"ssl_truststore_type": "JKS"}, "JKS"),
        ({"replication_factor": "many"}, "replication.factor"),
        ({"no_such": "x"}, "no.such"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidKafkaProperty, match=message):
        of(**given)


def test_certificates_that_are_not_there_are_refused() -> None:
    with pytest.raises(InvalidKafkaProperty, match="certificates"):
        of(security_protocol="SSL", ssl_truststore_location="/nowhere.pem").tls()
