"""The console's pages about connectors, mirrors and the schema registry."""

from __future__ import annotations

import json
import re

from console_lab import SCRIPT, Console, ConsoleLab
from playwright.sync_api import expect
from waiting import eventually

DEMO = "connectors/DEMO_ORDERS"


def test_connectors_are_listed_with_state_class_and_tasks(console: Console) -> None:
    page = console.open("connectors")
    (row,) = [row for row in console.rows("Connectors") if row[0] == "DEMO_ORDERS"]
    assert row[1:5] == ["source", "RUNNING", "datagen", "1"]
    page.get_by_label("Search connectors, classes, states").fill("no such")
    expect(page.locator(".bar [role=status]")).to_have_text(re.compile("^0 of"))


def test_a_connector_shows_tasks_positions_and_settings_without_secrets(console: Console) -> None:
    page = console.open(DEMO)
    assert console.rows("Tasks")[0][:2] == ["0", "RUNNING"]
    expect(page.get_by_role("region", name="Positions")).to_contain_text("next 20")
    settings = page.get_by_role("region", name="Settings")
    expect(settings.get_by_role("row", name="password")).to_contain_text("********")
    expect(page.get_by_role("link", name="demo_orders")).to_be_visible()
    assert "hunter2" not in page.content()


def test_a_connector_is_paused_and_resumed_by_statements_that_are_shown_first(console: Console) -> None:
    page = console.open(DEMO)
    for verb, state in (("Pause", "PAUSED"), ("Resume", "RUNNING")):
        page.get_by_role("button", name=verb, exact=True).click()
        expect(page.locator("dialog .code")).to_have_text(f"{verb.upper()} CONNECTOR DEMO_ORDERS;")
        page.locator("dialog").get_by_role("button", name="Run").click()
        expect(page.locator(".bar [role=status]")).to_have_text(state)


def test_a_dropped_connector_leaves_the_list(lab: ConsoleLab, console: Console) -> None:
    lab.ksql(
        "CREATE SOURCE CONNECTOR doomed_one WITH ('connector.class'='datagen', 'quickstart'='users', "
        "'kafka.topic'='doomed_users', 'iterations'=1);"
    )
    page = console.open("connectors/DOOMED_ONE")
    page.get_by_role("button", name="Drop").click()
    page.locator("dialog").get_by_role("button", name="Run").click()
    expect(page.get_by_role("heading", name="Connectors")).to_be_visible()
    eventually(lambda: "DOOMED_ONE" not in [row[0] for row in console.rows("Connectors")])
    page = console.open("connectors/DOOMED_ONE")
    expect(page.locator("main")).to_contain_text("There is no such connector")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_disabled()


def test_a_connector_that_fails_shows_its_error_as_text(lab: ConsoleLab, console: Console) -> None:
    """The answer is another's: what a failed task says depends on its connector."""
    page = console.open("connectors")
    status = {
        "name": "BAD", "type": "sink", "connector": {"state": "RUNNING", "worker_id": "w"},
        "tasks": [{"id": 0, "state": "FAILED", "worker_id": "w", "trace": SCRIPT}],
    }  # fmt: skip
    answer = {"BAD": {"status": status, "info": {"config": {"connector.class": "http"}}}}
    page.route("**/connectors?expand*", lambda route: route.fulfill(body=json.dumps(answer)))
    console.open("connectors")
    eventually(lambda: console.rows("Connectors")[0][0] == "BAD")
    row = console.rows("Connectors")[0]
    assert (row[2], row[5]) == ("FAILED", SCRIPT)
    assert page.locator("main script, main img").count() == 0
    assert page.title() == "Connectors · Millstream"


def test_mirrors_are_listed_with_state_source_and_lag(console: Console) -> None:
    page = console.open("mirrors")
    (row,) = [row for row in console.rows("Mirrors") if row[0] == "DEMO_MIRROR"]
    assert row[1:6] == ["RUNNING", "exact", "127.0.0.1:9", "0", "unknown"]
    page.get_by_label("Search mirrors, sources, states").fill("no such")
    expect(page.locator(".bar [role=status]")).to_have_text(re.compile("^0 of"))


def test_a_mirror_shows_what_holds_it_back_and_settings_without_secrets(console: Console) -> None:
    page = console.open("mirrors/DEMO_MIRROR")
    expect(page.get_by_role("region", name="What holds it back")).to_contain_text("no log answers at 127.0.0.1:9")
    settings = page.get_by_role("region", name="Settings")
    expect(settings.get_by_role("row", name="groups")).to_contain_text("shop*")
    assert "hunter2" not in page.content()


def test_a_mirror_is_paused_and_resumed_by_statements_that_are_shown_first(console: Console) -> None:
    page = console.open("mirrors/DEMO_MIRROR")
    for verb, state in (("Pause", "PAUSED"), ("Resume", "RUNNING")):
        page.get_by_role("button", name=verb, exact=True).click()
        expect(page.locator("dialog .code")).to_have_text(f"{verb.upper()} MIRROR DEMO_MIRROR;")
        page.locator("dialog").get_by_role("button", name="Run").click()
        expect(page.locator(".bar [role=status]")).to_have_text(state)


def test_an_unknown_mirror_is_an_error_that_says_so(console: Console) -> None:
    page = console.open("mirrors/NOPE")
    expect(page.locator("main")).to_contain_text("There is no such mirror")
    expect(page.get_by_role("button", name="Promote", exact=True)).to_be_disabled()


def test_subjects_are_listed_with_format_versions_and_compatibility(console: Console) -> None:
    page = console.open("registry")
    assert console.rows("Subjects")[0] == ["contracts-value", "contracts", "AVRO", "2", "2", "2", "BACKWARD"]
    expect(page.locator(".bar")).to_contain_text("compatibility by default: BACKWARD")
    page.get_by_label("Search subjects").fill("nothing of that name")
    expect(page.locator(".empty")).to_contain_text("registers its schema")


def test_a_subject_shows_what_a_version_has_that_the_one_before_has_not(console: Console) -> None:
    page = console.open("registry/contracts-value")
    expect(page.locator("ins")).to_have_text([re.compile('"PRICE"'), re.compile('"double"')])
    page.get_by_label("Version", exact=True).select_option("1")
    schema = page.get_by_label("Schema of version 1")
    expect(schema).to_contain_text('"NAME"')
    expect(schema).not_to_contain_text('"PRICE"')
    assert page.locator("ins").count() == 0
    page.get_by_role("link", name="contracts", exact=True).click()
    expect(page).to_have_title("contracts · Millstream")


def test_an_unknown_subject_is_an_error_that_says_so(console: Console) -> None:
    page = console.open("registry/none%2Fsuch")
    expect(page.get_by_role("alert")).to_contain_text('the registry has no subject "none/such"')
