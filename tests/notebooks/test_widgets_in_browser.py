"""The live table and the live chart in a browser: the JavaScript that notebooks load, fed by a real query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, needs_browser
from widget_page import WidgetPage

from millstream.connection import Connection

pytestmark = [needs_browser, pytest.mark.timeout(180)]

CELLS = "[...document.querySelectorAll('tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))"
STATE = "document.querySelector('.ms-state').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def totals(ms: Connection) -> str:
    ms.sql(
        "CREATE STREAM cups (tea STRING KEY, price INT) WITH (kafka_topic='cups', value_format='JSON', partitions=1);"
    )
    ms.sql(
        "CREATE TABLE totals AS SELECT tea, COUNT(*) AS n, SUM(price) AS earned "
        "FROM cups GROUP BY tea HAVING COUNT(*) < 4;"
    )
    return "totals"


def sell(ms: Connection, *teas: str | None) -> None:
    ms.insert("cups", {"tea": list(teas), "price": [3] * len(teas)})


def rows_are(expected: list[list[str]]) -> str:
    return f"JSON.stringify({CELLS}.sort()) === JSON.stringify({sorted(expected)!r})"


def test_a_table_shows_rows_as_they_come_change_and_go(ms: Connection, totals: str, browser: Browser) -> None:
    live = ms.table(totals).live_table()
    page = WidgetPage(browser, live)
    assert browser.run("document.querySelector('.ms-empty').textContent") == "No rows yet"
    before = browser.screenshot()

    sell(ms, "mint", "assam", "mint")
    page.until(rows_are([["assam", "1", "3"], ["mint", "2", "6"]]))
    with_rows = browser.screenshot()
    assert before != with_rows

    sell(ms, "assam", "sencha")
    page.until(rows_are([["assam", "2", "6"], ["mint", "2", "6"], ["sencha", "1", "3"]]))
    assert browser.screenshot() != with_rows
    assert browser.run(f"{CELLS}.map((row) => row[0]).indexOf('sencha')") == 2, "an old row keeps its place"

    sell(ms, "mint", "mint")
    page.until(rows_are([["assam", "2", "6"], ["sencha", "1", "3"]]))
    assert browser.run("document.querySelector('.ms-figures').textContent").startswith(f"{live.status.received} rows")
    live.close()


def test_the_button_ends_the_query_and_the_state_is_told(ms: Connection, totals: str, browser: Browser) -> None:
    live = ms.table(totals).live_table()
    page = WidgetPage(browser, live)
    assert browser.run(STATE) == "live"
    browser.run("document.querySelector('.ms-stop').click(); 1")
    page.until(f"{STATE} === 'stopped' && document.querySelector('.ms-stop').hidden")
    assert live.status.state == "stopped"


def test_a_view_tells_when_it_opens_and_closes(ms: Connection, totals: str, browser: Browser) -> None:
    live = ms.table(totals).live_table()
    page = WidgetPage(browser, live)
    page.carry()
    assert live._views == 1
    browser.run("host.end(); 1")
    page.carry()
    assert live._views == 0
    live.close()


def test_readers_sort_by_a_column(ms: Connection, browser: Browser) -> None:
    live = ms.sql("SELECT user, size FROM clicks EMIT CHANGES LIMIT 3;").live_table()
    page = WidgetPage(browser, live)
    page.until(f"{CELLS}.length === 3")
    sizes = f"{CELLS}.map((row) => row[1]).join()"
    assert browser.run(sizes) == "5,4,3", "of changes the latest stands on top"
    by_size = "document.querySelectorAll('th button')[1].click(); 1"
    browser.run(by_size)
    browser.run(by_size)
    assert browser.run(sizes) == "3,4,5"
    assert browser.run("document.querySelectorAll('th')[1].getAttribute('aria-sort')") == "ascending"


def test_what_is_in_the_rows_is_shown_and_never_run(ms: Connection, browser: Browser) -> None:
    hostile = "<img src=x onerror='window.hit = 1'>"
    ms.sql("CREATE STREAM texts (a STRING, b INT) WITH (kafka_topic='texts', value_format='JSON', partitions=1);")
    ms.insert("texts", {"a": [hostile, None], "b": [None, 1]})
    page = WidgetPage(browser, ms.sql("SELECT * FROM texts EMIT CHANGES LIMIT 2;").live_table())
    page.until(f"{CELLS}.length === 2")
    assert browser.run(CELLS) == [["NULL", "1"], [hostile, "NULL"]]
    assert browser.run("document.querySelectorAll('img').length") == 0
    chart = ms.sql("SELECT a AS x, b FROM texts EMIT CHANGES;").live_chart("x", "b", title=hostile)
    page = WidgetPage(browser, chart)
    ms.insert("texts", {"a": [hostile], "b": [1]})
    page.until("document.querySelectorAll('rect').length === 1")
    assert browser.run("document.querySelectorAll('img').length + (window.hit ?? 0)") == 0
    chart.close()


def test_bars_grow_and_have_a_legend_that_hides_them(ms: Connection, totals: str, browser: Browser) -> None:
    chart = ms.table(totals).live_chart("tea", ["n", "earned"], title="Cups")
    page = WidgetPage(browser, chart)
    page.until("document.querySelectorAll('rect').length >= 4")
    before = browser.screenshot()
    bars = browser.run("document.querySelectorAll('rect').length")
    sell(ms, "oolong")
    page.until(f"document.querySelectorAll('rect').length === {bars + 2}")
    assert browser.screenshot() != before
    assert browser.run("document.querySelector('.ms-title').textContent") == "Cups"
    browser.run("document.querySelector('.ms-legend button').click(); 1")
    page.until(f"document.querySelectorAll('rect').length === {bars // 2 + 1}")
    assert browser.run("document.querySelector('.ms-legend button').getAttribute('aria-pressed')") == "false"
    chart.close()


def test_lines_over_time_can_be_read_by_pointer_by_key_and_as_numbers(ms: Connection, browser: Browser) -> None:
    ms.sql(
        "CREATE STREAM load (host STRING KEY, v DOUBLE) WITH (kafka_topic='load', value_format='JSON', partitions=1);"
    )
    minute = 60_000
    ms.insert(
        "load", {"host": ["a", "b"] * 3, "v": [1.0, 8, 2, 4, 3, 2], "ROWTIME": [n // 2 * minute for n in range(6)]}
    )
    windows = "SELECT host, WINDOWSTART, MAX(v) AS high FROM load WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY host"
    chart = ms.sql(f"{windows} EMIT CHANGES;").live_chart()
    page = WidgetPage(browser, chart, dark=True)
    page.until("document.querySelectorAll('circle').length === 6")
    assert browser.run("document.querySelectorAll('.ms-curve').length") == 2
    assert "WINDOWSTART, UTC 1970-01-01" in browser.run("document.querySelector('svg').textContent")

    tip = "[...document.querySelectorAll('.ms-tip > *')].map((part) => part.textContent).join('|')"
    browser.run("document.querySelector('svg').focus(); 1")
    for _ in range(2):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft")
    assert browser.run(tip) == "1970-01-01 00:01:00|b4|a2" or browser.run(tip) == "1970-01-01 00:01:00|a2|b4"
    box = browser.run("(({left, top}) => [left, top])(document.querySelector('svg').getBoundingClientRect())")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + 60, y=box[1] + 50)
    assert browser.run(tip).startswith("1970-01-01 00:00:00|")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    assert browser.run("document.querySelector('.ms-tip').hidden")

    browser.run("document.querySelector('details').open = true; 1")
    page.until("document.querySelectorAll('details tbody tr').length === 3")
    assert browser.run("document.querySelector('svg').getAttribute('aria-label')").startswith(
        "Lines of HIGH over WINDOWSTART"
    )
    chart.close()


def test_a_line_has_a_gap_where_windows_are_missing(ms: Connection, browser: Browser) -> None:
    ms.sql("CREATE STREAM beats (h STRING KEY, v INT) WITH (kafka_topic='beats', value_format='JSON', partitions=1);")
    minutes = [0, 1, 2, 6, 9, 10]
    ms.insert("beats", {"h": ["a"] * 6, "v": [1] * 6, "ROWTIME": [minute * 60_000 for minute in minutes]})
    windows = "SELECT h, WINDOWSTART, COUNT(*) AS n FROM beats WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY h"
    chart = ms.sql(f"{windows} EMIT CHANGES;").live_chart()
    page = WidgetPage(browser, chart)
    page.until("document.querySelectorAll('circle').length === 6")
    path = browser.run("document.querySelector('.ms-curve').getAttribute('d')")
    assert [part.count("L") for part in path.split("M")[1:]] == [2, 0, 1]
    chart.close()


def test_nothing_is_loaded_from_elsewhere(ms: Connection, totals: str, browser: Browser, tmp_path: Path) -> None:
    asked: list[str] = []
    browser.on_event = lambda method, params: (
        asked.append(params["request"]["url"]) if method == "Network.requestWillBeSent" else None
    )
    browser.call("Network.enable")
    try:
        chart = ms.table(totals).live_chart("tea", "n")
        WidgetPage(browser, chart).until("document.querySelectorAll('rect').length > 0")
        chart.close()
    finally:
        browser.call("Network.disable")
        browser.on_event = lambda _method, _params: None
    assert [url for url in asked if not url.startswith(("blob:", "about:", "data:"))] == []
