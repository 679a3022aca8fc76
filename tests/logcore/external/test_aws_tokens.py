"""IAM authentication of Amazon MSK: which token is sent, and what is refused before anything is."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import pytest

from millstream.logcore.errors import LogUnavailable
from millstream.logcore.external.kafka_properties import InvalidKafkaProperty, KafkaProperties
from millstream.logcore.protocol.security.logins import TokenLogin

from ...support.s3_server import aws_server

pytest.importorskip("aws_msk_iam_sasl_signer", reason="AWS's signer is not installed (millstream[msk])")

BROKERS = (
    "b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com:9098,b-2.orders.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"
)
MODULE = "software.amazon.msk.auth.iam.IAMLoginModule required"
HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
OAUTH_HANDLER = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
AS_JAVA = {
    "bootstrap.servers": BROKERS,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{MODULE};",
    "sasl.client.callback.handler.class": HANDLER,
}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    nowhere = tmp_path_factory.mktemp("aws") / "none"
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATESTS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret-of-the-tests")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(nowhere))


def login(given: Mapping[str, str]) -> TokenLogin:
    found = KafkaProperties(given).login()
    assert isinstance(found, TokenLogin)
    return found


def signed(token: str) -> tuple[str, dict[str, str]]:
    """The host and the parameters of the request that a token is."""
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    return url.netloc, {name: values[0] for name, values in parse_qs(url.query).items()}


@pytest.mark.parametrize("given", [
    AS_JAVA,
    {**AS_JAVA, "sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": OAUTH_HANDLER},
], ids=["AWS_MSK_IAM", "OAUTHBEARER"])  # fmt: skip
def test_properties_of_javas_clients_give_a_signed_token_of_the_brokers_region(given: dict[str, str]) -> None:
    taken = login(given)
    host, fields = signed(taken.token())
    assert host == "kafka.eu-west-1.amazonaws.com"
    assert fields["Action"] == "kafka-cluster:Connect"
    assert fields["X-Amz-Credential"].startswith("AKIATESTS/")
    assert fields["X-Amz-Credential"].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert taken.mechanism == "OAUTHBEARER"
    assert next(taken.conversation()) == f"n,,\x01auth=Bearer {taken.token()}\x01\x01".encode()


def test_a_token_is_kept_for_most_of_its_quarter_of_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = login(AS_JAVA)
    first = taken.token()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
    assert taken.token() == first
    assert signed(login(AS_JAVA).token())[1]["X-Amz-Credential"].startswith("AKIAOTHER/")


@pytest.mark.parametrize(("broker", "region"), [
    ("boot-ab.c1.kafka-serverless.us-east-2.amazonaws.com:9098", "us-east-2"),
    ("b-1.x.y.c3.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
    ("b-1.x.y.c3.kafka.us-gov-west-1.amazonaws.com:9098", "us-gov-west-1"),
    ("kafka.internal:9098", "eu-central-1"),
])  # fmt: skip
def test_the_region_is_that_of_the_brokers_or_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, broker: str, region: str
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    _, fields = signed(login({**AS_JAVA, "bootstrap.servers": broker}).token())
    assert fields["X-Amz-Credential"].split("/")[2] == region


def test_a_role_is_assumed_and_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    jaas = f'{MODULE} awsRoleArn="arn:aws:iam::123456789012:role/stream" awsRoleSessionName="ms";'
    with aws_server("sts") as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{port}")
        _, fields = signed(login({**AS_JAVA, "sasl.jaas.config": jaas}).token())
    assert not fields["X-Amz-Credential"].startswith("AKIATESTS/")
    assert fields["X-Amz-Security-Token"]


def test_without_credentials_the_brokers_are_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(LogUnavailable, match="AWS gives no credentials"):
        login(AS_JAVA).token()
    jaas = f'{MODULE} awsProfileName="nobody";'
    with pytest.raises(LogUnavailable, match="nobody"):
        login({**AS_JAVA, "sasl.jaas.config": jaas}).token()


@pytest.mark.parametrize(("changed", "message"), [
    ({"security.protocol": "SASL_PLAINTEXT"}, "clear text"),
    ({"bootstrap.servers": "kafka.internal:9098"}, "set AWS_REGION"),
    ({"bootstrap.servers": "b-1.kafka.eu-west-1.amazonaws.com.other.example:9098"}, "set AWS_REGION"),
    ({"sasl.jaas.config": f'{MODULE} awsProfileName="a" awsRoleArn="b";'}, "set one of them"),
    ({"sasl.client.callback.handler.class": "com.example.Mine"}, "sasl.client.callback.handler.class"),
    ({"sasl.login.callback.handler.class": "com.example.Mine"}, "sasl.login.callback.handler.class"),
])  # fmt: skip
def test_what_could_not_work_is_refused_at_once(changed: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidKafkaProperty, match=message):
        KafkaProperties({**AS_JAVA, **changed}).login()
