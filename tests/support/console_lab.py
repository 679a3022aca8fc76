"""The web console in Chromium: one server with streams, queries and hostile records, and one browser, for all tests."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import httpx
import pyarrow as pa
import pytest
from browser import browser_path
from running_server import service_in
from waiting import eventually

from millstream.logcore.client import RowRecords
from millstream.server.service import Service

try:
    from playwright.sync_api import Browser, BrowserContext, Dialog, Locator, Page, Playwright, expect, sync_playwright
except ImportError:  # pragma: no cover
    pytest.skip("needs playwright: pip install -e '.[dev]'", allow_module_level=True)

ARGUMENTS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-proxy-server",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--js-flags=--expose-gc",
    "--enable-precise-memory-info",
)  # fmt: skip
SCRIPT: Final = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
BIDI: Final = "abc\u202egpj.exe\u2066x\u200b"
CONTROLS: Final = "bell\u0007 escape\u001b[31m nul\u0000"
LINK: Final = "javascript:document.title='owned'"
LONG: Final = "x" * 1_000_000 + "END"
BIG: Final = "9007199254740993"
DDL: Final = """
CREATE STREAM clicks (user STRING KEY, url STRING, size INT)
  WITH (kafka_topic='clicks', value_format='JSON', partitions=2);
CREATE STREAM big AS SELECT user, url, size * 2 AS doubled FROM clicks WHERE size > 10;
CREATE TABLE per_user AS SELECT user, COUNT(*) AS n, SUM(doubled) AS total FROM big
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY user EMIT FINAL;
CREATE TABLE per_url AS SELECT url, COUNT(*) AS n, SUM(size) AS total FROM clicks GROUP BY url;
CREATE STREAM never AS SELECT * FROM clicks WHERE size > 1000000;
CREATE STREAM doomed AS SELECT * FROM clicks WHERE size > 5;
CREATE STREAM resting AS SELECT * FROM clicks;
CREATE STREAM hostile (k STRING KEY, v STRING) WITH (kafka_topic='hostile', value_format='JSON', partitions=1);
CREATE STREAM numbers (k INT KEY, b BIGINT, d DECIMAL(10, 2))
  WITH (kafka_topic='numbers', value_format='JSON', partitions=1);
CREATE STREAM broken (k STRING KEY, v INT) WITH (kafka_topic='broken', value_format='JSON', partitions=1);
CREATE STREAM mended AS SELECT k, v + 1 AS v FROM broken;
CREATE STREAM `<img src=x onerror=alert(1)>` (k STRING KEY, v STRING)
  WITH (kafka_topic='odd', value_format='JSON', partitions=1);
CREATE STREAM visits (visitor STRING KEY, page STRING)
  WITH (kafka_topic='visits', value_format='JSON', partitions=1);
CREATE TABLE per_page AS SELECT page, COUNT(*) AS n FROM visits GROUP BY page;
CREATE STREAM contracts (id INT KEY, name STRING) WITH (kafka_topic='contracts', value_format='AVRO', partitions=1);
ALTER STREAM contracts ADD COLUMN price DOUBLE;
CREATE SOURCE CONNECTOR demo_orders WITH ('connector.class'='datagen', 'quickstart'='orders',
  'kafka.topic'='demo_orders', 'max.interval'=0, 'iterations'=20, 'password'='hunter2');
CREATE MIRROR demo_mirror FROM '127.0.0.1:9' TOPICS 'orders*' WITH ('sasl.password'='hunter2', 'groups'='shop*');
PAUSE CSAS_RESTING_6;
INSERT INTO visits VALUES ('ada', '/'), ('bob', '/'), ('ada', '/shop');
INSERT INTO clicks (rowtime, user, url, size) VALUES
  (1000, 'ada', '/', 30), (2000, 'bob', '/shop', 20), (3000, 'ada', '/', 5), (61000, 'ada', '/', 40);
"""
_SHOW_ANEW: Final = """address => {
    history.replaceState(null, '', address);
    dispatchEvent(new HashChangeEvent('hashchange'));
}"""
_DRAWN: Final = "() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
EARLIEST: Final = {"auto.offset.reset": "earliest"}


class Console:
    """One context of the browser with one page. Its problems are `problems`: errors of scripts, refused policies,
    requests to other hosts."""

    def __init__(self, browser: Browser, url: str, **context: Any) -> None:
        self.url = url
        shape: Any = {"viewport": {"width": 1280, "height": 820}, **context}
        self.context: BrowserContext = browser.new_context(**shape)
        self.context.set_default_timeout(20_000)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        self.page.on("console", lambda message: self._said(message.type, message.text))
        self.page.on("dialog", self._opened)
        self.context.on("request", lambda request: self._requested(request.url))

    def open(self, path: str = "overview", *, load: bool = False) -> Page:
        """A page of the console, shown anew. `load`: all of its files, too, where they are there already."""
        if load or not self.page.url.startswith(f"{self.url}/console/"):
            self.page.goto("about:blank")
            self.page.goto(f"{self.url}/console/#/{path}")
            self.page.locator("main .view").wait_for()
        else:
            self.page.evaluate(_SHOW_ANEW, f"#/{path}")
        return self.page

    def check(self) -> None:
        """At the end of a test. Raises `AssertionError` where there were problems."""
        self.page.unroute_all()
        problems, self.problems, self.asked = self.problems, [], []
        assert problems == []

    def grid(self, label: str) -> Locator:
        return self.page.get_by_role("grid", name=label, exact=True)

    def rows(self, label: str, at_least: int = 1) -> list[list[str]]:
        """The texts of the visible rows from top to bottom, once there are so many."""
        body = self.grid(label).locator(".grid-rows > [role=row]")
        body.nth(at_least - 1).wait_for()
        self.page.evaluate(_DRAWN)
        return body.evaluate_all(
            "rows => rows.toSorted((a, b) => a.ariaRowIndex - b.ariaRowIndex)"
            ".map(row => [...row.children].map(cell => cell.textContent.trim()))"
        )

    def until(self, script: str, argument: Any = None) -> Any:
        return self.page.wait_for_function(script, arg=argument, polling=50).json_value()

    def close(self) -> None:
        self.context.close()
        assert self.problems == []

    def _said(self, kind: str, text: str) -> None:
        if kind == "error" and "Failed to load resource" not in text:
            self.problems.append(f"console: {text}")

    def _opened(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, url: str) -> None:
        self.asked.append(url)
        if not url.startswith((f"{self.url}/", "about:", "data:", "blob:")):
            self.problems.append(f"another host: {url}")


class ConsoleLab:
    """Started when it is asked for first."""

    def __init__(self) -> None:
        self._parts = contextlib.ExitStack()
        expect.set_options(timeout=20_000)  # on a busy machine, too
        playwright: Playwright = self._parts.enter_context(sync_playwright())
        self.browser = playwright.chromium.launch(executable_path=browser_path(), args=list(ARGUMENTS))
        self._parts.callback(self.browser.close)
        self.service = self.serve()
        self.url = f"http://{self.service.http_address}"
        self.http = self._parts.enter_context(httpx.Client(base_url=self.url, timeout=60))
        self._fill()
        self._shared: dict[str, Console] = {}

    @contextlib.contextmanager
    def shared_console(self, url: str | None = None, **context: Any) -> Generator[Console]:
        """One page for many tests that want the same server and context, until one of them fails."""
        wanted = repr((url, sorted(context.items())))
        console = self._shared.pop(wanted, None) or Console(self.browser, url or self.url, **context)
        yield console
        console.check()
        self._shared[wanted] = console

    def serve(self, **flags: Any) -> Service:
        """Another server, empty."""
        folder = Path(self._parts.enter_context(tempfile.TemporaryDirectory()))
        return self._parts.enter_context(service_in(folder, **flags))

    def ksql(self, text: str) -> list[dict[str, Any]]:
        answer = self.http.post("/ksql", json={"ksql": text, "streamsProperties": EARLIEST})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def metric(self, query_id: str, name: str) -> float:
        lines = self.http.get("/metrics", params={"name[]": f"millstream_query_{name}"}).text.splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if f'"{query_id}"' in line and line[0] != "#")

    @contextlib.contextmanager
    def console(self, url: str | None = None, **context: Any) -> Generator[Console]:
        opened = Console(self.browser, url or self.url, **context)
        try:
            yield opened
        finally:
            opened.close()

    def close(self) -> None:
        self._parts.close()

    def _fill(self) -> None:
        self.ksql(DDL)
        self.ksql(f"INSERT INTO numbers VALUES (1, {BIG}, 3.50);")
        texts = [SCRIPT, BIDI, CONTROLS, LINK, LONG]
        keys = [text if text != LONG else "long" for text in texts]
        header = [{"key": "trace", "value": SCRIPT.encode()}]
        self._append("hostile", keys, [json.dumps({"V": text}) for text in texts], header)
        self._append("broken", ["a", "b"], ["{not json", json.dumps({"V": SCRIPT})], [])
        for query_id, count in (("CTAS_PER_URL_3", 4), ("CSAS_NEVER_4", 4), ("CTAS_PER_USER_2", 3)):
            eventually(_reads(self, query_id, count))
        eventually(lambda: self.metric("CSAS_MENDED_10", "rows_failed") == 2)

    def _append(self, topic: str, keys: list[str], values: list[str], headers: list[dict[str, Any]]) -> None:
        """Bytes that no INSERT writes."""
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        columns = {
            "timestamp": pa.array(range(len(keys)), pa.int64()),
            "key": pa.array([key.encode() for key in keys], pa.binary()),
            "value": pa.array([value.encode() for value in values], pa.binary()),
            "headers": pa.array([headers] * len(keys), kind),
        }
        self.service.engine.log.append(topic, 0, RowRecords(pa.table(columns)))


def _reads(lab: ConsoleLab, query_id: str, count: int) -> Callable[[], bool]:
    return lambda: lab.metric(query_id, "rows_in") >= count
