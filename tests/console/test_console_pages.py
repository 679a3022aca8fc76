"""What the pages of the console show of a server, and what they do to it."""

from __future__ import annotations

import re

import pytest
from console_lab import Console, ConsoleLab
from playwright.sync_api import expect
from waiting import eventually


def test_the_overview_counts_what_there_is(console: Console) -> None:
    page = console.open()
    expect(page.locator(".card", has_text="Queries").first.locator("strong")).to_have_text(re.compile("[78]"))
    expect(page.locator(".card", has_text="Tables").locator("strong")).to_have_text("3")
    expect(page.get_by_role("region", name="This server")).to_contain_text("RUNNING")


def test_the_overview_says_which_query_is_held_back_and_why(console: Console) -> None:
    console.open()
    why = {row[0]: row[2] for row in console.rows("Queries in trouble", 3)}
    assert "filter" in why["CSAS_NEVER_4"].lower()
    assert "wait in open windows" in why["CTAS_PER_USER_2"]
    assert "paused" in why["CSAS_RESTING_6"].lower()


def test_the_overview_tells_rates_at_its_second_look(console: Console) -> None:
    page = console.open()
    expect(page.locator(".spark-words")).to_contain_text("read 0/s")


def test_a_server_without_streams_is_told_the_first_step(lab: ConsoleLab) -> None:
    with lab.console(f"http://{lab.serve().http_address}") as console:
        page = console.open()
        expect(page.locator(".first-step")).to_contain_text("CREATE STREAM clicks")
        page.locator(".first-step").get_by_role("link", name="Open in the editor").click()
        expect(page.get_by_label("SQL", exact=True)).to_have_value(re.compile("CREATE STREAM clicks"))
        page.get_by_role("button", name="Run").click()
        expect(page.locator(".done")).to_have_text("Stream created")
        for path in ("queries", "groups", "log", "graph/CLICKS"):
            console.open(path)
            expect(page.locator("main")).not_to_be_empty()
        console.open("queries")
        expect(page.locator(".empty")).to_contain_text("CREATE TABLE per_url")


def test_the_list_of_queries_has_their_states(console: Console) -> None:
    console.open("queries")
    states = {row[0]: row[1] for row in console.rows("Queries", 6)}
    assert states["CSAS_BIG_1"] == "RUNNING"
    assert states["CSAS_RESTING_6"] == "PAUSED"


def test_the_search_finds_queries_by_their_statements(console: Console) -> None:
    page = console.open("queries")
    console.rows("Queries", 6)
    page.get_by_label("Search queries and statements").fill("1000000")
    expect(page.locator(".bar [role=status]")).to_have_text(re.compile("^1 of"))
    assert [row[0] for row in console.rows("Queries")] == ["CSAS_NEVER_4"]


def test_queries_are_filtered_by_state(console: Console) -> None:
    page = console.open("queries")
    console.rows("Queries", 6)
    page.get_by_label("State", exact=True).select_option("PAUSED")
    expect(page.locator(".bar [role=status]")).to_have_text(re.compile("^1 of"))


def test_a_click_on_a_title_sorts(console: Console) -> None:
    page = console.open("queries")
    names = sorted(row[0] for row in console.rows("Queries", 6))
    title = page.get_by_role("columnheader", name="Query")
    title.get_by_role("button").click()
    expect(title).to_have_attribute("aria-sort", "ascending")
    assert [row[0] for row in console.rows("Queries", 6)] == names
    title.get_by_role("button").click()
    expect(title).to_have_attribute("aria-sort", "descending")
    console.until(
        """names => [...document.querySelectorAll('.grid-rows > [role=row]')]
        .toSorted((a, b) => a.ariaRowIndex - b.ariaRowIndex)[0].children[0].textContent === names.at(-1)""",
        names,
    )


def test_a_row_opens_its_query(console: Console) -> None:
    page = console.open("queries")
    console.grid("Queries").locator("[role=row]", has_text="CTAS_PER_URL_3").locator("[role=gridcell]").nth(6).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("CTAS_PER_URL_3")


def test_a_query_shows_its_operators_with_their_counts(console: Console) -> None:
    console.open("queries/CSAS_BIG_1")
    steps = {row[0].split()[0]: row for row in console.rows("Operators", 3)}
    assert (steps["SOURCE"][1], steps["SOURCE"][3]) == ("4", "4")
    assert (steps["SINK"][1], steps["SINK"][3]) == ("3", "3")
    partitions = console.rows("Partitions", 2)
    assert {row[0] for row in partitions} == {"clicks"}
    assert {row[3] for row in partitions} == {"0"}


def test_a_query_says_why_nothing_comes_out_and_what_to_do(console: Console) -> None:
    page = console.open("queries/CTAS_PER_USER_2")
    cause = page.locator(".causes .blocks").first
    expect(cause).to_contain_text("wait in open windows (EMIT FINAL")
    expect(cause.locator(".hint")).to_contain_text("Only records advance stream time")


def test_pausing_shows_the_statement_before_it_runs(console: Console, lab: ConsoleLab) -> None:
    page = console.open("queries/CTAS_PER_URL_3")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("dialog .code")).to_have_text("PAUSE CTAS_PER_URL_3;")
    page.get_by_role("button", name="Cancel").click()
    assert state(lab, "CTAS_PER_URL_3") == "RUNNING"
    page.get_by_role("button", name="Pause").click()
    page.locator("dialog").get_by_role("button", name="Run").click()
    expect(page.locator(".bar .state")).to_have_text("PAUSED")
    assert state(lab, "CTAS_PER_URL_3") == "PAUSED"
    page.get_by_role("button", name="Resume").click()
    page.locator("dialog").get_by_role("button", name="Run").click()
    expect(page.locator(".bar .state")).to_have_text("RUNNING")
    assert state(lab, "CTAS_PER_URL_3") == "RUNNING"


def test_terminating_ends_the_query_and_leads_to_the_list(console: Console, lab: ConsoleLab) -> None:
    page = console.open("queries/CSAS_DOOMED_5")
    page.get_by_role("button", name="Terminate").click()
    expect(page.locator("dialog .code")).to_have_text("TERMINATE CSAS_DOOMED_5;")
    page.locator("dialog").get_by_role("button", name="Run").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queries")
    assert state(lab, "CSAS_DOOMED_5") is None


def test_a_push_query_is_listed_shown_and_terminated(console: Console, lab: ConsoleLab) -> None:
    asked = {"sql": "SELECT * FROM visits EMIT CHANGES;"}
    with lab.http.stream("POST", "/query-stream", json=asked) as response:
        page = console.open("queries")
        console.grid("Queries").locator("[role=row]", has_text="PUSH").locator("[role=gridcell]").nth(6).click()
        expect(page.locator(".bar .state")).to_have_text("RUNNING")
        expect(page.get_by_role("button", name="Pause")).to_be_disabled()
        expect(page.get_by_role("region", name="Statement", exact=True)).to_contain_text("EMIT CHANGES")
        expect(page.get_by_role("region", name="Plan")).to_contain_text("SOURCE STREAM VISITS")
        expect(page.get_by_role("region", name="Operators")).to_be_hidden()
        page.get_by_role("button", name="Terminate").click()
        page.locator("dialog").get_by_role("button", name="Run").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Queries")
        response.read()


def state(lab: ConsoleLab, query_id: str) -> str | None:
    (shown,) = lab.ksql("SHOW QUERIES;")
    return next((query["state"] for query in shown["queries"] if query["id"] == query_id), None)


def test_what_the_server_refuses_is_shown_with_its_words(console: Console) -> None:
    page = console.open("queries/CTAS_PER_USR_2")
    expect(page.get_by_role("alert")).to_contain_text("CTAS_PER_USR_2")


def test_streams_and_tables_are_filtered_by_kind(console: Console) -> None:
    page = console.open("sources")
    console.rows("Streams and tables", 8)
    page.get_by_label("Kind", exact=True).select_option("TABLE")
    expect(page.locator(".bar [role=status]")).to_have_text(re.compile("^3 of"))
    assert [row[0] for row in console.rows("Streams and tables", 3)] == ["PER_PAGE", "PER_URL", "PER_USER"]


def test_a_source_shows_columns_statement_readers_and_writers(console: Console) -> None:
    page = console.open("sources/BIG")
    assert [row[:2] for row in console.rows("Columns", 3)] == [
        ["USER", "STRING"],
        ["URL", "STRING"],
        ["DOUBLED", "INTEGER"],
    ]
    expect(page.get_by_role("region", name="Written by")).to_contain_text("CSAS_BIG_1")
    expect(page.get_by_role("region", name="Read by")).to_contain_text("CTAS_PER_USER_2")
    expect(page.get_by_role("region", name="Statement", exact=True)).to_contain_text("WHERE size > 10")


def test_a_source_shows_where_its_columns_come_from(console: Console) -> None:
    console.open("sources/BIG")
    lines = console.rows("Where columns come from", 4)
    assert ["BIG.DOUBLED", "CLICKS.SIZE", "direct transformation", "CLICKS.SIZE * 2", "CSAS_BIG_1"] in lines


def test_topics_have_their_partitions_and_records(console: Console) -> None:
    console.open("topics")
    topics = {row[0]: row for row in console.rows("Topics", 5)}
    assert topics["clicks"][1] == "2"
    assert int(topics["clicks"][2]) >= 4  # offsets: markers of transactions have some, too
    assert not any(name.startswith("_") for name in topics)


def test_internal_topics_are_shown_on_request(console: Console) -> None:
    page = console.open("topics")
    console.rows("Topics", 5)
    page.get_by_label("internal topics").check()
    page.get_by_label("Search topics").fill("_millstream-command")
    expect(console.grid("Topics")).to_contain_text("_millstream-command")


def test_records_begin_with_the_newest(console: Console) -> None:
    console.open("topics/clicks")
    records = console.rows("Records", 4)
    assert records[0][0] == "1970-01-01 00:01:01.000"
    assert [row[3] for row in records] == ["ada", "ada", "bob", "ada"]


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ({"contains": "SHOP"}, ["bob"]),
        ({"latest": "on"}, ["ada", "bob"]),
        ({"from": "oldest", "limit": "50"}, ["ada", "bob", "ada", "ada"]),
        ({"from": "time", "time": "1970-01-01T00:00:03"}, ["ada", "ada"]),
        ({"from": "offset", "offset": "9"}, []),
    ],
    ids=["containing", "latest of each key", "oldest", "time", "offset beyond the end"],
)
def test_records_are_searched(console: Console, fields: dict[str, str], keys: list[str]) -> None:
    page = console.open("topics/clicks")
    console.rows("Records", 4)
    for name, value in fields.items():
        field = page.locator(f"form [name={name}]")
        if value == "on":
            field.check()
        elif field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    page.get_by_role("button", name="Look").click()
    expect(page.locator("p[role=status]")).to_have_text(re.compile(rf"^{len(keys)} records;"))
    if keys:
        assert [row[3] for row in console.rows("Records", len(keys))] == keys
    else:
        expect(page.locator(".records .empty")).to_contain_text("No record.")


def test_records_of_one_partition(console: Console) -> None:
    page = console.open("topics/clicks")
    partitions = [row[1] for row in console.rows("Records", 4)]
    page.locator("form [name=partition]").select_option("1")
    page.get_by_role("button", name="Look").click()
    expect(page.locator("p[role=status]")).to_have_text(re.compile(f"^{partitions.count('1')} records;"))


def test_a_record_opens_with_its_json_and_headers(console: Console) -> None:
    page = console.open("topics/clicks")
    console.grid("Records").locator("[role=row]", has_text="/shop").locator("[role=gridcell]").first.click()
    expect(page.locator("dialog pre").last).to_have_text('{\n  "URL": "/shop",\n  "SIZE": 20\n}')
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


def test_a_topic_without_a_stream_offers_to_declare_one(console: Console) -> None:
    page = console.open("topics/default_ksql_processing_log")
    page.get_by_role("link", name="Declare a stream").click()
    expect(page.get_by_label("SQL", exact=True)).to_have_value(re.compile("kafka_topic='default_ksql_processing_log'"))


def test_nodes_of_the_graph_lead_to_their_pages(console: Console) -> None:
    page = console.open("graph")
    page.get_by_role("link", name="QUERY CSAS_BIG_1 RUNNING").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("CSAS_BIG_1")


def test_the_graph_around_a_name_has_nothing_else(console: Console) -> None:
    page = console.open("graph/NUMBERS")
    expect(page.get_by_role("link", name="STREAM NUMBERS")).to_be_visible()
    assert page.locator("svg.graph .node").count() == 1


def test_edges_of_the_graph_have_rates(console: Console, lab: ConsoleLab) -> None:
    page = console.open("graph/VISITS")
    expect(page.locator(".edge-label").first).to_have_text("0/s")
    lab.ksql("INSERT INTO visits VALUES ('eve', '/new'), ('eve', '/newer');")
    expect(page.locator(".edge.flows").first).to_be_visible()


def test_groups_have_their_lag(console: Console) -> None:
    page = console.open("groups")
    groups = {row[0]: row for row in console.rows("Consumer groups", 3)}
    assert int(groups["CSAS_BIG_1"][2]) == 2
    page.get_by_role("link", name="CSAS_BIG_1").click()
    assert [row[0] for row in console.rows("Positions", 2)] == ["clicks", "clicks"]


def test_a_single_server_says_that_it_is_one(console: Console) -> None:
    page = console.open("cluster")
    expect(page.locator("main")).to_contain_text("a single node, with one copy of its data")
    expect(page.locator(".facts")).to_contain_text("READY")


def test_the_processing_log_shows_what_queries_left_out(console: Console) -> None:
    page = console.open("log")
    entries = console.rows("Errors of records", 2)
    assert {(row[1], row[2]) for row in entries} == {("CSAS_MENDED_10", "decoding value")}
    console.grid("Errors of records").locator("[role=row]", has_text="broken/0@0").locator(
        "[role=gridcell]"
    ).first.click()
    expect(page.locator("dialog")).to_contain_text("{not json")


def test_settings_are_searched(console: Console) -> None:
    page = console.open("settings")
    console.rows("Properties", 5)
    page.get_by_label("Search properties").fill("max.push.queries")
    expect(page.locator(".bar [role=status]")).to_have_text(re.compile("^1 of"))
    expect(page.get_by_role("region", name="Users and rights")).to_contain_text("There are no users")


def test_each_page_shows_what_it_sends(console: Console) -> None:
    page = console.open("queries/CSAS_BIG_1")
    sent = page.locator(".calls")
    expect(sent).to_contain_text("EXPLAIN STALL CSAS_BIG_1;")
    sent.get_by_text("EXPLAIN STALL").click()
    expect(page.get_by_label("SQL", exact=True)).to_have_value("EXPLAIN STALL CSAS_BIG_1;")


def test_a_page_that_is_left_asks_no_more(console: Console) -> None:
    page = console.open("queries")
    console.rows("Queries", 5)
    page.get_by_role("link", name="Editor", exact=True).click()
    expect(page.get_by_label("SQL", exact=True)).to_be_visible()
    page.wait_for_timeout(300)
    before = len(console.asked)
    page.wait_for_timeout(2500)
    assert len(console.asked) == before


def test_what_changes_on_the_server_changes_on_the_page(console: Console, lab: ConsoleLab) -> None:
    page = console.open("sources/NUMBERS")
    expect(page.get_by_role("region", name="Read by")).to_contain_text("No query reads it yet.")
    lab.ksql("CREATE STREAM numbers_too AS SELECT * FROM numbers;")
    expect(page.get_by_role("region", name="Read by")).to_contain_text("CSAS_NUMBERS_TOO")
    lab.ksql("DROP STREAM numbers_too CASCADE;")
    eventually(lambda: "NUMBERS_TOO" not in str(lab.ksql("SHOW QUERIES;")))
