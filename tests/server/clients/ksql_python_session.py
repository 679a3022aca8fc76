"""A session of the PyPI package `ksql` (ksql-python 0.10.2), run as a program of its own: prints a line per answer.

Its HTTP/2 library, hyper, was written for Python 3.9 and older: names that moved to `collections.abc` are put back
first, here and nowhere in the package. Two of its own mistakes show whatever the server does, and are not touched: raw
rows end with an exception of Python's, and over "HTTP/2" it speaks HTTP/1.1 with the whole URL as the path.
"""

import collections
import collections.abc
import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any

for name in ("Iterable", "Mapping", "MutableMapping", "MutableSet"):
    setattr(collections, name, getattr(collections.abc, name))

from ksql import KSQLAPI  # noqa: E402
from ksql.errors import KSQLError  # noqa: E402
from ksql.utils import drop_all_streams, get_all_streams  # noqa: E402

EARLIEST = {"ksql.streams.auto.offset.reset": "earliest"}


def main(url: str) -> None:
    client = KSQLAPI(url)
    say("version", client.get_ksql_version())
    say("properties", len(client.get_properties()) > 10)
    ddl = "CREATE STREAM views (id INT KEY, url STRING) WITH (kafka_topic='views', value_format='JSON', partitions=1)"
    say("ksql", client.ksql(ddl)[0]["commandStatus"]["status"])
    say("made", client.create_stream("visits", ["viewtime bigint", "userid varchar"], "views"))
    say("derived", client.create_stream_as("copies", ["id", "url"], "views", conditions="id > 1"))
    try:
        client.ksql("SELEC 1")
    except KSQLError as error:
        say("refused", error.error_code)
    say("inserts", client.inserts_stream("VIEWS", [{"ID": 1, "URL": "a"}, {"ID": 2, "URL": "b"}]))
    live = "SELECT * FROM views EMIT CHANGES"
    say("rows", list(client.query(f"{live} LIMIT 2", stream_properties=EARLIEST, return_objects=True)))
    say("raw", raw(client, f"{live} LIMIT 2"))
    stream = split(client.query(live, stream_properties=EARLIEST, use_http2=True))
    header = next(stream)
    say("header", header["columnNames"])
    say("row", next(stream))
    say("closed", [client.close_query(header["queryId"]), client.close_query("nothing")])
    say("rest", list(stream)[-1:])
    say("pull", list(split(client.query("SELECT id FROM views WHERE id = 2", use_http2=True)))[1:])
    say("streams", sorted(get_all_streams(client)))
    client.ksql("TERMINATE ALL")
    drop_all_streams(client)
    say("dropped", get_all_streams(client))


def raw(client: KSQLAPI, text: str) -> list[str]:
    lines = []
    lines = []
    with contextlib.suppress(RuntimeError):  # its generator ends with StopIteration
        for line in client.query(text, stream_properties=EARLIEST):
            lines.append(line)
    return lines


def split(chunks: Iterator[str]) -> Iterator[Any]:
    """Rows that came together are one chunk."""
    for chunk in chunks:
        yield from map(json.loads, chunk.splitlines())


def say(what: str, value: object) -> None:
    print(json.dumps([what, value]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
