"""Draw the pictures of docs/console.md: a server with streams, queries and visitors, looked at in Chromium.

    python tests/support/console_pictures.py [FOLDER]

Needs Chromium and playwright. Pictures of every page, light and dark, come from the tests: see
`MILLSTREAM_CONSOLE_SHOTS` in tests/console.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

import httpx
from browser import browser_path
from console_lab import ARGUMENTS
from playwright.sync_api import sync_playwright
from running_server import ServerProcess

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_EARLIEST: Final = {"auto.offset.reset": "earliest"}
_DDL: Final = """
CREATE STREAM clicks (user STRING KEY, url STRING, size INT)
  WITH (kafka_topic='clicks', value_format='JSON', partitions=2);
CREATE STREAM big AS SELECT user, url, size * 2 AS doubled FROM clicks WHERE size > 10;
CREATE TABLE per_user AS SELECT user, COUNT(*) AS n, SUM(doubled) AS total FROM big
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY user EMIT FINAL;
CREATE TABLE per_url AS SELECT url, COUNT(*) AS visits, SUM(size) AS kilobytes FROM clicks GROUP BY url;
CREATE STREAM outliers AS SELECT * FROM clicks WHERE size > 1000000;
CREATE SOURCE CONNECTOR shop WITH ('connector.class'='datagen', 'quickstart'='orders', 'kafka.topic'='shop_orders',
  'max.interval'=100);
"""
_LIVE: Final = "SELECT url, visits, kilobytes\nFROM per_url\nEMIT CHANGES;"


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        ServerProcess(Path(data)) as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
        sync_playwright() as playwright,
    ):
        http.post("/ksql", json={"ksql": _DDL, "streamsProperties": _EARLIEST}).raise_for_status()
        done = threading.Event()
        visitors = threading.Thread(target=_visit, args=(server.url, done))
        visitors.start()
        browser = playwright.chromium.launch(executable_path=browser_path(), args=list(ARGUMENTS))

        def draw(path: str, scheme: str, name: str, wait_ms: int, sql: str | None = None) -> None:
            dark = "dark" if scheme == "dark" else "light"
            page = browser.new_context(viewport={"width": 1180, "height": 760}, color_scheme=dark).new_page()
            page.goto(f"{server.url}/console/#/{path}")
            if sql is not None:
                page.get_by_role("combobox", name="SQL", exact=True).fill(sql)
                page.get_by_role("button", name="Run").click()
                page.get_by_role("button", name="Chart").click()
            page.wait_for_timeout(wait_ms)
            page.screenshot(path=folder / f"console-{name}-{scheme}.png")
            page.context.close()

        draw("overview", "light", "overview", 20_000)
        draw("queries/CTAS_PER_USER_2", "dark", "query", 5_000)
        draw("editor", "light", "editor", 4_000, _LIVE)
        draw("connectors/SHOP", "light", "connector", 3_000)
        draw("graph", "dark", "graph", 7_000)
        done.set()
        visitors.join()


def _visit(url: str, done: threading.Event) -> None:
    with httpx.Client(base_url=url, timeout=60) as http:
        for turn in itertools.count():
            rows = (f"('u{(turn + n) % 7}', '/page-{(turn * n) % 5 + 1}', {(turn * 7 + n) % 60})" for n in range(40))
            http.post("/ksql", json={"ksql": f"INSERT INTO clicks VALUES {', '.join(rows)};"})
            if done.wait(0.25):
                return


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "docs" / "images")
