"""Sealed secrets: what opens them, and what does not."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from millstream.executor.connect.secret_vault import KnownSecrets, SecretKeyMissing, SecretVault, UnknownSecret
from millstream.planner.connector_info import SecretInfo

VALUES = {"user": "ana", "password": "hunter2 ü\x00"}


def test_a_vault_with_the_same_file_opens_what_another_one_has_sealed(tmp_path: Path) -> None:
    file = tmp_path / "connect.key"
    sealed = SecretVault(file, creates=True).seal("PG", VALUES)
    assert file.stat().st_mode & 0o777 == 0o600
    assert SecretVault(file).unseal("PG", sealed) == VALUES
    assert SecretVault(file, creates=True).unseal("PG", sealed) == VALUES  # which keeps the key that is there
    assert [path.name for path in tmp_path.iterdir()] == ["connect.key"]


def test_equal_secrets_look_different_and_short_ones_as_long_as_others() -> None:
    vault = SecretVault()
    texts = {vault.seal("PG", {"": value}) for value in ("a", "a", "a much longer one, but not by far")}
    assert len(texts) == 3
    assert len({len(text) for text in texts}) == 1
    assert not any(b"longer" in base64.urlsafe_b64decode(text) for text in texts)


def test_a_long_value_comes_back_whole() -> None:
    vault, values = SecretVault(), {"key": "-----BEGIN\n" + "x" * 10_000}
    assert vault.unseal("K", vault.seal("K", values)) == values


def test_any_change_of_a_sealed_text_is_noticed() -> None:
    vault = SecretVault()
    data = bytearray(base64.urlsafe_b64decode(vault.seal("PG", VALUES)))
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(SecretKeyMissing):
            vault.unseal("PG", base64.urlsafe_b64encode(changed).decode())
    for text in ("", "no base64", "AAAA"):
        with pytest.raises(SecretKeyMissing, match="another version"):
            vault.unseal("PG", text)


def test_a_secret_cannot_be_taken_for_another_one() -> None:
    vault = SecretVault()
    with pytest.raises(SecretKeyMissing, match="is damaged"):
        vault.unseal("OTHER", vault.seal("PG", VALUES))


def test_another_key_is_told_apart_from_damage(tmp_path: Path) -> None:
    sealed = SecretVault(tmp_path / "a", creates=True).seal("PG", VALUES)
    SecretVault(tmp_path / "b", creates=True).seal("X", VALUES)
    with pytest.raises(SecretKeyMissing, match="sealed with another key") as caught:
        SecretVault(tmp_path / "b").unseal("PG", sealed)
    assert "CREATE OR REPLACE SECRET" in (caught.value.hint or "")


def test_a_file_that_is_missing_open_to_others_or_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SecretKeyMissing, match="no such file") as caught:
        SecretVault(tmp_path / "nowhere").seal("PG", VALUES)
    assert "same key on every node" in (caught.value.hint or "")
    file = tmp_path / "key"
    file.write_text("k" * 44)
    for mode in (0o644, 0o660, 0o604):
        file.chmod(mode)
        with pytest.raises(SecretKeyMissing, match="others can use the key"):
            SecretVault(file).seal("PG", VALUES)
    file.chmod(0o440)  # as orchestrators mount it
    SecretVault(file).seal("PG", VALUES)
    file.chmod(0o600)
    file.write_text("short\n")
    with pytest.raises(SecretKeyMissing, match="too short"):
        SecretVault(file).seal("PG", VALUES)


def test_a_reference_means_the_only_value_or_the_one_of_a_key() -> None:
    vault = SecretVault()
    secrets = {
        name: SecretInfo(name, vault.seal(name, values))
        for name, values in (("PG", VALUES), ("ONE", {"password": "p"}), ("low", {"a": "b"}))
    }
    known = KnownSecrets(vault, lambda: secrets)
    assert [known.value(text) for text in ("pg:PASSWORD", "PG:user", "one", "one:password", "low")] == [
        VALUES["password"], "ana", "p", "p", "b",
    ]  # fmt: skip
    with pytest.raises(UnknownSecret, match="PG has 2 values") as caught:
        known.value("pg")
    assert "${secret:pg:key}" in (caught.value.hint or "")
    with pytest.raises(UnknownSecret, match="has no value nope"):
        known.value("pg:nope")
    with pytest.raises(UnknownSecret, match="Secret PGG does not exist") as caught:
        known.value("pgg")
    assert "PG" in (caught.value.hint or "")
