"""One run, in namespaces of its own where they are allowed (`python -m tests.cluster` starts it there)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bench.clusters import Place, apache_kafka, local_places, millstream

from .chaos import Outcome, Run, Settings
from .disks import SmallDisk
from .network import Network, is_isolated
from .proxies import Proxies

NODES = 3
DISK_MIB = 384
_KAFKA_PORT, _NODES_PORT, _HTTP_PORT = 9092, 9093, 8088


def main() -> int:
    """The exit code is 0 where no anomaly was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.inside")
    parser.add_argument("--servers", choices=("millstream", "kafka"), default="millstream")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--session-ms", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--brief", action="store_true")
    given: Any = parser.parse_args()
    outcome = run(given.servers, Settings(given.seed, given.seconds, given.session_ms, given.folder, given.brief))
    for anomaly in outcome.anomalies[:50]:
        sys.stdout.write(f"{anomaly.kind}: {anomaly.what[:2000]}\n")
    return 1 if outcome.anomalies else 0


def run(servers: str, settings: Settings) -> Outcome:
    settings.folder.mkdir(parents=True)
    cluster_of = millstream if servers == "millstream" else apache_kafka
    output, session_ms = settings.folder / "nodes", settings.session_ms
    if is_isolated():
        network = Network(NODES)
        disks = {n: SmallDisk(settings.folder / f"disk{n}", DISK_MIB) for n in range(1, NODES + 1)}
        cluster = cluster_of(_places(network, disks), output, session_ms=session_ms, wrap=network.inside)
        return Run(settings, cluster, network, disks).execute()
    places = local_places(NODES, settings.folder / "data")
    if servers != "millstream":  # a broker of Kafka has one address for all others
        return Run(settings, cluster_of(places, output, session_ms=session_ms), None, {}).execute()
    proxies = Proxies({node: (place.host, place.nodes) for node, place in places.items()})
    cluster = millstream(places, output, session_ms=session_ms, proxies=proxies.port)
    return Run(settings, cluster, proxies, {}).execute()


def _places(network: Network, disks: dict[int, SmallDisk]) -> dict[int, Place]:
    return {
        node: Place(network.address(node), _KAFKA_PORT, _NODES_PORT, _HTTP_PORT, disk.data)
        for node, disk in disks.items()
    }


if __name__ == "__main__":
    sys.exit(main())
