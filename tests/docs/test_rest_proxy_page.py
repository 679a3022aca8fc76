"""docs/rest-proxy.md is true: its commands print what stands under them, and its tables name every path and bound."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import httpx
from repository import REPOSITORY
from running_server import service_in

from millstream.server.rest_proxy import bounded_body, v2_consumers, v2_topics, v3_records
from millstream.server.rest_proxy.proxy_paths import PROXY_PATHS
from millstream.server.rest_proxy.reading import BYTES_DEFAULT, BYTES_MAX

PAGE = (REPOSITORY / "docs" / "rest-proxy.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^```sh\n(.*?)^```\n\n```\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_commands_print_what_stands_under_them(tmp_path: Path) -> None:
    examples = EXAMPLE.findall(PAGE)
    assert len(examples) == PAGE.count("```sh\n") == 7
    with service_in(tmp_path) as service:
        address = str(service.http_address)
        cluster = httpx.get(f"http://{address}/v3/clusters").json()["data"][0]["cluster_id"]
        for command, printed in examples:
            done = subprocess.run(
                ["bash", "-c", command.replace("127.0.0.1:8088", address)],
                env={"CLUSTER": cluster, "PATH": "/usr/local/bin:/usr/bin:/bin"},
                capture_output=True, text=True, timeout=60, check=True,
            )  # fmt: skip
            assert done.stdout.replace("\r", "").strip() == printed.replace("127.0.0.1:8088", address).strip(), command


def test_the_tables_name_every_path() -> None:
    """The last part of each path that is no name."""
    tables = PAGE[PAGE.index("## What there is") :]
    for doc in PROXY_PATHS:
        last = [part for part in doc.path.split("/") if "{" not in part and part != "clusters"][-1]
        assert last == "v3" or re.search(rf"/{re.escape(last)}\b", tables), doc.path


def test_the_bounds_are_those_of_the_code() -> None:
    assert f"{BYTES_DEFAULT >> 20} MiB, or `max_bytes` up to {BYTES_MAX >> 20} MiB" in PAGE
    assert f"{v2_consumers.UNREAD_BYTES_MAX >> 20} MiB together" in PAGE
    assert f"nothing for {bounded_body.STALL_SECONDS_MAX:.0f} seconds" in PAGE
    assert f"| {v2_consumers.READS_MAX}, and as many that wait" in PAGE
    assert f"| {v3_records.STREAMS_MAX} |" in PAGE
    assert f"records, up to {v2_topics.RECORDS_MAX:,}" in PAGE
    assert f"writes up to {v3_records.ENTRIES_MAX:,} records" in PAGE
