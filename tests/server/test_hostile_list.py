"""The list of hostile input, and the tests of each line. Who adds a line names its tests."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

FILES = {
    "sql": "sql/test_hostile_text.py",
    "variables": "sql/test_variables.py",
    "plans": "planner/test_limits.py",
    "mutations": "properties/test_fuzzed_statements.py",
    "engine": "server/test_hostile_engine.py",
    "http": "server/test_hostile_http.py",
    "http limits": "server/test_http_limits.py",
    "http base": "server/test_http.py",
    "http fuzz": "server/test_http_fuzz.py",
    "arrow": "server/test_arrow_body.py",
    "access": "server/test_http_access.py",
    "pulls": "server/test_pull_limits.py",
    "frames": "logcore/protocol/test_hostile_frames.py",
    "bodies": "logcore/cluster/test_hostile_bodies.py",
    "batches": "logcore/protocol/test_incoming.py",
    "connections": "logcore/protocol/test_connection.py",
    "receiving": "logcore/protocol/test_receiving.py",
    "remote log": "logcore/protocol/test_requests.py",
    "data": "server/test_hostile_data.py",
    "values": "server/test_hostile_values.py",
    "json": "executor/formats/test_json.py",
    "delimited": "executor/formats/test_delimited.py",
    "avro": "executor/formats/test_avro.py",
    "protobuf": "executor/formats/test_protobuf.py",
    "msgpack": "executor/formats/test_msgpack.py",
    "calls": "server/test_hostile_calls.py",
    "clients": "server/test_rude_clients.py",
}

LINES = {
    "SQL: text of more than a megabyte, too many tokens, columns, joins": "sql:hostile_text_is_refused",
    "SQL: nested too deeply, lists too long": "sql:nested_too_deeply plans:grow_faster_than_its_text",
    "SQL: NUL, surrogates, direction overrides, zero width": "sql:hostile_text_is_refused",
    "SQL: a byte order mark": "sql:byte_order_mark",
    "SQL: quotes and comments without an end": "sql:hostile_text_is_refused sql:damaged_statement",
    "SQL: no recursion": "sql:parsing_does_not_recurse",
    "SQL: whatever text": "sql:any_text_gives_statements mutations:damaged_statement_is_planned",
    "SQL: variables are put in after splitting, as one value": "variables:outside_quotes variables:leaves_its_string",
    "SQL: undefined variables": "variables:undefined_variable",
    "engine: files, extensions, secrets, settings, pragmas, other statements": "engine:no_statement_reaches_out",
    "engine: the connection below it": "engine:engine_itself_reaches_nothing",
    "Spark: its functions, jars, directories, settings": "engine:no_statement_reaches_out",
    "HTTP: headers too many, too large": "http:too_large_headers",
    "HTTP: a body too large, without an end, slow": "http:without_an_end http base:never_ends http base:bad_request",
    "HTTP: headers that come slowly": "http limits:too_slowly",
    "HTTP: connections of one address and of all": "http limits:more_connections",
    "HTTP: streams reset at once": "http:taken_back_at_once",
    "HTTP: push queries at a time, their rows and time": (
        "http base:too_many_push_queries http limits:ends_after_its_rows http limits:ends_after_its_time"
    ),
    "HTTP: pull queries per second, at a time, in bytes": "http limits:have_a_rate http limits:seconds_hours",
    "HTTP: rows, time and memory of a pull query": "pulls:",
    "HTTP: a reader that stalls": "http base:takes_nothing http base:does_not_read",
    "HTTP: two lengths": "http:two_ways http:second_request",
    "HTTP: paths that climb": "http:path_leads",
    "HTTP: compressed bodies": "http:unpacks arrow:compressed_buffers",
    "HTTP: deep JSON": "http:json_however_deep",
    "HTTP: Arrow that stands for more than it weighs, damaged": "arrow:more_than_it_weighs arrow:damaged_bodies",
    "HTTP: garbage on the socket": "http base:garbage http fuzz:odd_requests",
    "HTTP: who does not log in, wrong passwords, missing rights": (
        "access:does_not_say access:rights_of_their_names access:right_to_read access:other_routes access:web_sockets"
    ),
    "HTTP: passwords in plain text, in logs, in errors": (
        "access:do_not_travel access:neither_statements access:without_repeating"
    ),
    "HTTP: certificates of clients": "access:without_a_certificate http limits:certificates_names",
    "HTTP: pages of other origins": "http:pages_of_other_origins",
    "HTTP: errors with stacks or paths": "http:errors_show",
    "HTTP: clients that come, stall and vanish": "clients:forgotten clients:half_an_hour",
    "Kafka: lengths, counts, varints, unknown requests": "frames:hostile_frames_do_no_harm receiving:no_frame_has",
    "Kafka: before a log-in": "frames:where_there_are_users",
    "Kafka: random bytes, half frames, pipelined requests": "connections:random_bytes connections:inside_a_frame",
    "Kafka: a peer that takes no answers": "connections:does_not_take",
    "Kafka: batches that lie, old formats, checksums": "batches:choke batches:older_formats batches:flipped_bit",
    "Kafka: data cut off": "batches:cut_off",
    "Kafka: decompression bombs": "batches:grow_out_of batches:grow_without_bound",
    "Kafka: fields at their limits, in every request, to a cluster": "bodies:hostile_requests_end_no_node",
    "Kafka: names of 32 KB, batches too large for followers": "bodies:longest_name bodies:no_follower",
    "Kafka: topics of Millstream's own": "remote log:wrong_secret",
    "data: poison stops nothing and does not vanish": "data:poison_is_logged",
    "data: JSON however deep, long, wrong": "data:poison_is_logged json:hostile_bytes json:cost_no_time",
    "data: tombstones, empty values, unknown and doubled fields": "data:looks_like_poison",
    "data: times out of bounds": "data:out_of_all_bounds",
    "data: sums that overflow": "data:overflows",
    "data: patterns that backtrack, values that grow": (
        "values:backtracks_for_ever values:grows_too_large values:like_ends"
    ),
    "data: every function with values that nobody expects": "calls:no_function_holds calls:no_call_of_any",
    "data: functions of users that do not end": "values:a_function_of_a_users values:an_aggregate_of_a_users",
    "data: large keys and values": "data:large_keys",
    "data: broken lines of DELIMITED": "delimited:broken_line",
    "data: Avro that is none, endless, recursive": "avro:no_record avro:endless avro:contains_itself",
    "data: Protobuf that is none": "protobuf:no_message",
    "data: MessagePack that is none, deep, or promises more than it has": "msgpack:poison msgpack:whatever_bytes",
}


@functools.cache
def names_in(file: str) -> tuple[str, ...]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return tuple(function.name for function in functions if function.name.startswith("test_"))


def references(line: str) -> list[tuple[str, str]]:
    """File and part of the test's name, for each `key:part`; keys may have spaces."""
    words, found = LINES[line].split(), []
    key = ""
    for word in words:
        before, colon, part = word.partition(":")
        key = f"{key} {before}".strip()
        if colon:
            found.append((FILES[key], part))
            key = ""
    return found


@pytest.mark.parametrize("line", LINES)
def test_each_line_has_its_tests(line: str) -> None:
    found = references(line)
    assert found
    for file, part in found:
        assert any(part in name for name in names_in(file)), f"no test of {file} has {part} in its name"


def test_each_file_of_hostile_tests_is_in_the_list() -> None:
    named = {file for line in LINES for file, _ in references(line)}
    assert named == set(FILES.values())
    assert {str(path.relative_to(TESTS)) for path in TESTS.rglob("test_hostile_*.py")} - {
        "server/test_hostile_list.py"
    } <= named
