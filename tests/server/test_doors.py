"""Who gets to the doors: names of hosts, and the folder on the disk."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import httpx
from running_server import service_in

FLAGS = {
    "http_hosts": ("sql.example.com",), "schema_registry": "127.0.0.1:0",
    "properties": {"ksql.advertised.listener": "http://ksql.example.org:8088"},
}  # fmt: skip


def test_a_server_answers_to_its_own_names_only(tmp_path: Path) -> None:
    with service_in(tmp_path / "data", **FLAGS) as service:
        for address in (service.http_address, service.schema_registry_address):
            for http2 in (False, True):
                with httpx.Client(base_url=f"http://{address}", timeout=20, http1=not http2, http2=http2) as client:
                    for host, status in (
                        ("127.0.0.1:80", 200), ("localhost", 200), ("LOCALHOST.:8088", 200), ("x.localhost", 200),
                        (f"{socket.gethostname()}:1", 200), ("[::1]:8088", 200), ("192.0.2.1", 200),
                        ("sql.example.com", 200), ("ksql.example.org:8088", 200),
                        ("evil.example", 421), ("127.0.0.1.evil.example:8088", 421), ("sql.example.com.evil", 421),
                    ):  # fmt: skip
                        path = "/info" if address is service.http_address else "/subjects"
                        answer = client.get(path, headers={"host": host})
                        assert answer.status_code == status, host
                        if status == 421:
                            assert answer.json()["error_code"] == 42100
                            assert "http_hosts" in answer.json()["message"]


def test_any_name_can_be_allowed(tmp_path: Path) -> None:
    with service_in(tmp_path / "data", http_hosts=("*",)) as service:
        assert httpx.get(f"http://{service.http_address}/info", headers={"host": "evil.example"}).status_code == 200


def test_the_data_folder_is_its_users(tmp_path: Path) -> None:
    data = tmp_path / "made" / "data"
    with service_in(data) as service:
        service.engine.log.create_topic("t", 1)
        assert _open_to_others(data) == []
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


def test_a_data_folder_from_earlier_is_tightened(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with service_in(data):
        pass
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with service_in(data):
        assert _open_to_others(data) == []
    data.chmod(0o755)
    (data / "notes.txt").touch(0o644)
    with service_in(data, log_level="warning"):
        assert stat.S_IMODE(data.stat().st_mode) == 0o755, "it is not ours alone"
        assert _open_to_others(data / "log") == []


def _open_to_others(folder: Path) -> list[Path]:
    return [path for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]
