"""The files in deploy/: they name settings, metrics and folders that exist, and the tools they are for accept them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from repository import REPOSITORY
from running_server import service_in
from three_servers import Servers
from waiting import eventually

from millstream.server.client import connect
from millstream.server.config.configuration import Configuration, load_configuration

DEPLOY = REPOSITORY / "deploy"
SETTING = re.compile(r"\bMILLSTREAM_([A-Z_]+)")
METRIC = re.compile(r"\bmillstream_[a-z_]+")
TABLE = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"


def files(pattern: str) -> list[Path]:
    return sorted(DEPLOY.rglob(pattern))


def documents(path: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each is not None]


@pytest.mark.parametrize("path", [*files("*.yaml"), DEPLOY / "Dockerfile"], ids=lambda path: path.name)
def test_settings_exist(path: Path) -> None:
    named = {name.lower() for name in SETTING.findall(path.read_text())}
    assert named - Configuration.model_fields.keys() == set()


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cluster.yaml"])
def test_a_server_starts_with_the_settings_of_a_service(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    services = documents(DEPLOY / name)[0]["services"]
    ours = [each for each in services.values() if each["image"] == "millstream"]
    assert ours
    for service in ours:
        with monkeypatch.context() as environment:
            for setting, value in service["environment"].items():
                environment.setenv(setting, value)
            configuration = load_configuration(None, {"data": Path("/data")})
        assert configuration.http_hosts or name != "compose.yaml"
        ports = {int(port.rpartition(":")[2]) for port in service["ports"]}
        assert ports <= {8088, 9092}
        for mounted in service["volumes"]:
            assert mounted.endswith(":/data")


def test_what_is_mounted_is_there() -> None:
    services = documents(DEPLOY / "compose.yaml")[0]["services"]
    mounted = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())]
    assert [path for path in mounted if path.startswith("./") and not (DEPLOY / path).exists()] == []


def test_the_image_takes_all_packages_and_nothing_else_of_the_repository() -> None:
    kept = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    packages = {folder.split("/")[0] for folder in project["tool"]["setuptools"]["package-dir"].values()}
    assert kept == packages | {"pyproject.toml", "constraints.txt", "README.md", "LICENSE"}


def test_the_cluster_of_kubernetes_is_one_that_its_services_and_probes_find() -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for each in documents(DEPLOY / "kubernetes/cluster.yaml")}
    nodes = found["StatefulSet", "millstream"]["spec"]
    pod = nodes["template"]["spec"]["containers"][0]
    members = next(each["value"] for each in pod["env"] if each["name"] == "MILLSTREAM_CLUSTER").split(",")
    headless = found["Service", nodes["serviceName"]]
    assert members == [
        f"{number + 1}@millstream-{number}.{nodes['serviceName']}:9093" for number in range(nodes["replicas"])
    ]
    ports = {port["name"]: port["containerPort"] for port in pod["ports"]}
    assert {port["name"]: port["port"] for port in headless["spec"]["ports"]} == ports
    assert headless["spec"]["publishNotReadyAddresses"]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        assert pod[probe]["httpGet"]["path"] in ("/livez", "/readyz")
    said = subprocess.run(
        ["sh", "-c", pod["args"][0].replace("exec millstream server", 'echo "$MILLSTREAM_NODE"')],
        env={"HOSTNAME": "millstream-2", "PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout == "3\n"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What one server shows at /metrics, and what a node of a cluster does."""
    folder = tmp_path_factory.mktemp("servers")
    with service_in(folder / "one") as service:
        url = f"http://{service.http_address}"
        connect(url).execute(TABLE + "CREATE STREAM q AS SELECT * FROM s;")
        connect(url).execute("INSERT INTO s VALUES (1, 2);")
        log = service.engine.log
        log.commit_offsets("g", {})
        eventually(lambda: "millstream_group_lag" in httpx.get(f"{url}/metrics").text, 30)
        one = httpx.get(f"{url}/metrics").text
    servers = Servers(folder / "three")
    try:
        servers.wait_until_healthy()
        yield one + httpx.get(f"{servers.url(1)}/metrics").text
    finally:
        servers.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "path", [DEPLOY / "grafana/alerts.yaml", DEPLOY / "grafana/dashboard.json"], ids=lambda p: p.name
)
def test_metrics_exist(shown: str, path: Path) -> None:
    there = set(re.findall(r"^# TYPE (\S+)", shown, re.MULTILINE))
    there |= {f"{name}_bucket" for name in there}
    assert set(METRIC.findall(path.read_text())) - there == set()


def test_the_pages_name_each_metric_and_no_other(shown: str) -> None:
    there = set(re.findall(r"^# TYPE millstream_(\S+)", shown, re.MULTILINE))
    there = {name for name in there if not name.endswith("_created")}
    told: set[str] = set()
    for page in ("operations.md", "cluster.md", "kafka.md"):
        figures = (REPOSITORY / "docs" / page).read_text().partition("## Figures\n")[2].partition("\n## ")[0]
        found = {
            name for each in re.findall(r"`([a-z_]+)`", figures) for name in (each, f"topic_{each}", f"group_{each}")
        }
        assert found & there
        told |= found
        own = re.findall(r"`([a-z]+_[a-z_]+)`", figures) if page == "operations.md" else ()
        assert set(own) - there == set()
    assert there - told == set()


def test_the_page_has_each_alert() -> None:
    names = re.findall(r"- alert: (\w+)", (DEPLOY / "grafana/alerts.yaml").read_text())
    described = re.findall(r"^\| `(Millstream\w+)`", (REPOSITORY / "docs/operations.md").read_text(), re.MULTILINE)
    assert described == names


def test_each_panel_has_a_place_of_its_own() -> None:
    panels = json.loads((DEPLOY / "grafana/dashboard.json").read_text())["panels"]
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(x < 24 for x, _ in cells)
    assert all(panel["description"] for panel in panels)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_accepts_the_alerts() -> None:
    checked = subprocess.run(
        ["promtool", "check", "config", DEPLOY / "grafana/prometheus.yaml"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("path", files("*.service") + files("*.timer"), ids=lambda path: path.name)
def test_systemd_accepts_the_units(path: Path, tmp_path: Path) -> None:
    text = path.read_text().replace("/opt/millstream/bin/millstream", shutil.which("true") or "/bin/true")
    for other in files("*.service"):
        (tmp_path / other.name).write_text(text if other == path else other.read_text().replace("/opt/", "/bin/"))
    (tmp_path / path.name).write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / path.name], capture_output=True, text=True, check=False
    )
    ours = [line for line in checked.stderr.splitlines() if path.name in line]
    assert ours == []


def test_the_health_check_of_the_image_finds_a_healthy_server_and_no_other(tmp_path: Path) -> None:
    line = next(each for each in (DEPLOY / "Dockerfile").read_text().splitlines() if "/healthcheck" in each)
    command: list[str] = json.loads(line.strip().removeprefix("CMD "))
    assert command[:2] == ["python", "-c"]

    def code(port: int) -> int:
        script = command[2].replace("127.0.0.1:8088", f"127.0.0.1:{port}")
        return subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode

    with service_in(tmp_path) as service:
        assert code(service.http_address.port) == 0
    assert code(service.http_address.port) != 0
