"""A long seeded walk over the statements that change a catalog, of small objects, with restarts, beside a model.

Each statement is one that the model allows, or one that it refuses; both are checked. An answer that speaks of an
internal error fails at once.
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from catalog_model import CatalogModel, Process, Query, Source, Topic, counted, moved, odd, plus, sum_plus
from running_server import ServerProcess
from waiting import eventually

from millstream.server.client import HttpClient, RemoteError, connect

SOURCES_MAX: Final = 12
_RECORDS_MAX: Final = 2000  # circles of resets and INSERT INTO double them
_SETTLE_SECONDS: Final = 60.0
_PARTITIONS: Final = (1, 2, 6)
_NAMES: Final = tuple(f"S{number}" for number in range(SOURCES_MAX + 4))


class CatalogWalk:
    """A server in `data`. `seconds` are the times of each kind of statement, in order."""

    def __init__(self, data: Path, seed: int, *flags: str) -> None:
        self.random = random.Random(seed)
        self.model = CatalogModel()
        self.seconds: dict[str, list[float]] = {}
        self.starts: list[float] = []
        self._data = data
        self._flags = flags
        self._loose: list[Query] = []  # were paused before they had read everything
        self._topics = itertools.count()
        self._last = ""
        self.history: list[str] = []
        self._start()

    def _start(self) -> None:
        began = time.perf_counter()
        self.server = ServerProcess(self._data, *self._flags)
        self.starts.append(time.perf_counter() - began)
        self.client: HttpClient = connect(self.server.url)
        self.client.properties["auto.offset.reset"] = "earliest"

    def step(self) -> None:
        if any(len(topic.records) > _RECORDS_MAX for topic in self.model.topics.values()):
            return self.drop_everything()
        kinds, weights = zip(*_KINDS, strict=True)
        self.random.choices(kinds, weights)[0](self)

    def restart(self, number: int) -> None:
        """In: `number`: of the signal that ends the server."""
        code = self.server.stop(number)
        assert code == (0 if number == signal.SIGTERM else -number)
        self._start()
        self.check()

    def stop(self) -> None:
        assert self.server.stop() == 0

    # What must hold

    def check(self) -> None:
        """The catalog now, and what is in it as soon as all is read."""
        self._check_catalog()
        for source in self.model.sources.values():
            if not any(source in self.model.downstream(query.writes) for query in self._loose):
                self._check_rows(source)

    def _check_catalog(self) -> None:
        shown = {**self._shown("SHOW STREAMS;", "streams"), **self._shown("SHOW TABLES;", "tables")}
        wanted = {name: (source.kind, source.topic.name) for name, source in self.model.sources.items()}
        assert {name: (each["type"], each["topic"]) for name, each in shown.items()} == wanted, self._last
        topics = set(self._shown("SHOW TOPICS;", "topics")) - {"default_ksql_processing_log"}
        assert topics == set(self.model.topics), topics ^ set(self.model.topics)
        states = {each["id"]: each["state"] for each in self._answer("SHOW QUERIES;")["queries"]}
        assert states == {query.id: "PAUSED" if query.paused else "RUNNING" for query in self.model.queries}, self._last

    def _check_rows(self, source: Source) -> None:
        wanted = source.topic.rows()

        def agree() -> bool:
            return self.rows(source) == wanted

        try:
            eventually(agree, _SETTLE_SECONDS)
        except AssertionError:
            found = self.rows(source)
            raise AssertionError(f"{source.name}: {found - wanted} too many, {wanted - found} missing") from None

    def rows(self, source: Source) -> Counter[tuple[int, ...]]:
        columns = ", ".join(("K", *source.columns))
        with self.client.query(f"SELECT {columns} FROM {source.name};") as rows:
            return Counter(tuple(row.values) for row in rows)

    def _shown(self, statement: str, member: str) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in self._answer(statement)[member]}

    def _answer(self, statement: str) -> dict[str, Any]:
        return self._run("show", statement)[0]

    def _run(self, kind: str, statement: str) -> list[dict[str, Any]]:
        self._last = statement
        self.history.append(statement)
        began = time.perf_counter()
        try:
            answer = self.client.execute(statement)
        except RemoteError as error:
            raise AssertionError(f"{statement}\n{error}") from error
        self.seconds.setdefault(kind, []).append(time.perf_counter() - began)
        assert "nternal" not in json.dumps(answer), answer
        return answer

    def _refused(self, statement: str) -> None:
        self._last = statement
        with pytest.raises(RemoteError) as caught:
            self.client.execute(statement)
        said = str(caught.value)
        assert caught.value.error_code < 50000, said
        assert "nternal" not in said and "Traceback" not in said, said

    def settle(self, query: Query) -> None:
        """Waits until it has read all that there is for it, and will be when those before it have read all."""
        for above in sorted(self._above(query), key=lambda each: len(self._above(each))):
            self._await_lag(above)
        self._await_lag(query)

    def _above(self, query: Query) -> list[Query]:
        """Those that make what it reads, directly or not. Of two of which one is above the other, it has fewer."""
        return [each for each in self.model.queries if query.reads in self.model.downstream(each.writes)]

    def _await_lag(self, query: Query) -> None:
        if query.paused:
            return

        def nothing_left() -> bool:
            positions = json.loads(self.client.get(f"/queries/{query.id}/positions"))["positions"]
            return all(each["offsetLag"] == 0 for each in positions)

        eventually(nothing_left, _SETTLE_SECONDS)

    # Statements

    def _free_name(self) -> str:
        return self.random.choice([name for name in _NAMES if name not in self.model.sources])

    def _some(self, among: Sequence[Source]) -> Source | None:
        return self.random.choice(among) if among else None

    def _of_kind(self, *, is_table: bool) -> list[Source]:
        return [source for source in self.model.sources.values() if source.is_table == is_table]

    def _some_query(self, *, paused: bool | None = None) -> Query | None:
        found = [query for query in self.model.queries if paused is None or query.paused == paused]
        return self.random.choice(found) if found else None

    def create(self) -> None:
        if len(self.model.sources) >= SOURCES_MAX:
            return self.drop()
        is_table = self.random.random() < 0.3
        used = {source.topic.name for source in self.model.sources.values()}
        left = [each for each in self.model.topics.values() if each.name not in used and each.is_table == is_table]
        left = [each for each in left if all(record[1] is None or len(record[1]) == 1 for record in each.records)]
        if left and self.random.random() < 0.3:
            topic, partitions = self.random.choice(left), ""
        else:
            topic = Topic(f"t{next(self._topics)}", self.random.choice(_PARTITIONS), is_table)
            partitions = f", partitions={topic.partitions}"
        source = Source(self._free_name(), topic, is_table)
        key = "PRIMARY KEY" if is_table else "KEY"
        self._run(
            "create",
            f"CREATE {source.kind} {source.name} (k INT {key}, v BIGINT)"
            f" WITH (kafka_topic='{topic.name}', value_format='JSON'{partitions});",
        )
        self.model.create(source)

    def derive(self) -> None:
        """CREATE … AS SELECT."""
        above = self._some(list(self.model.sources.values()))
        if above is None or len(self.model.sources) >= SOURCES_MAX:
            return self.drop()
        amount = self.random.randrange(10)
        name, topic_name = self._free_name(), f"t{next(self._topics)}"
        if above.is_table and above.columns != ("V",):
            select, process, columns, is_table = f"k, s + {amount} AS v", sum_plus(amount), ("V",), True
            rest = ""
        elif above.is_table:
            select, process, columns, is_table, rest = f"k, v + {amount} AS v", plus(amount), ("V",), True, ""
        else:
            shape = self.random.choice(("plus", "odd", "moved", "count"))
            select, process, columns, is_table, rest = _stream_shape(shape, amount)
        topic = Topic(topic_name, above.topic.partitions, is_table)
        source = Source(name, topic, is_table, columns, made=True)
        text = f"SELECT {select} FROM {above.name}{rest}"
        self._start_query(
            f"CREATE {source.kind} {name} WITH (kafka_topic='{topic_name}') AS {text};",
            Query(above, source, True, f"{select}|{rest}", process),
        )

    def insert_select(self) -> None:
        """INSERT INTO … SELECT between streams, without a circle."""
        streams = [source for source in self._of_kind(is_table=False) if source.columns == ("V",)]
        above = self._some(streams)
        if above is None:
            return self.create()
        below = self._some(
            [
                each
                for each in streams
                if above not in self.model.downstream(each) and above.topic is not each.topic and not each.added
            ]
        )
        if below is None or len(self.model.writers(below)) > 2:
            return self.insert()
        amount = self.random.randrange(10)
        self._start_query(
            f"INSERT INTO {below.name} SELECT k, v + {amount} AS v FROM {above.name};",
            Query(above, below, False, "", plus(amount)),
        )

    def _start_query(self, statement: str, query: Query) -> None:
        before = {each.id for each in self.model.queries}
        self._run("query", statement)
        shown = {each["id"] for each in self._answer("SHOW QUERIES;")["queries"]}
        (query.id,) = shown - before
        if query.made:
            self.model.create(query.writes)
        self.model.start(query)

    def replace(self) -> None:
        """CREATE OR REPLACE of what goes by one amount."""
        found = [query for query in self.model.queries if query.made and query.shape.startswith("k, v +")]
        if not found:
            return self.derive()
        query = self.random.choice(found)
        if query in self._loose or len(self.model.writers(query.writes)) > 1:
            return self.insert()
        self.settle(query)
        amount = self.random.randrange(10)
        source, rest = query.writes, query.shape.partition("|")[2]
        self._run(
            "replace",
            f"CREATE OR REPLACE {source.kind} {source.name} WITH (kafka_topic='{source.topic.name}')"
            f" AS SELECT k, v + {amount} AS v FROM {query.reads.name}{rest};",
        )
        query.process = odd(amount) if rest else plus(amount)
        query.shape = f"k, v + {amount} AS v|{rest}"
        (query.id,) = {each["id"] for each in self._answer("SHOW QUERIES;")["queries"]} - {
            each.id for each in self.model.queries if each is not query
        }

    def insert(self) -> None:
        written = {query.writes.name for query in self.model.queries if query.writes.is_table}
        source = self._some(
            [each for each in self.model.sources.values() if each.name not in written and each.columns == ("V",)]
        )
        if source is None:
            return self.create()
        rows = [(self.random.randrange(5), self.random.randrange(20)) for _ in range(self.random.choice((1, 1, 3)))]
        values = ", ".join(f"({key}, {value})" for key, value in rows)
        self._run("insert", f"INSERT INTO {source.name} (k, v) VALUES {values};")
        for key, value in rows:
            self.model.append(source.topic, (key, (value,)))

    def delete(self) -> None:
        source = self._some([each for each in self._of_kind(is_table=True) if not each.made])
        if source is None:
            return self.insert()
        key = self.random.randrange(5)
        self._run("delete", f"DELETE FROM {source.name} WHERE k = {key};")
        self.model.append(source.topic, (key, None))

    def pause(self) -> None:
        query = self._some_query(paused=False)
        if query is None:
            return self.derive()
        if self.random.random() < 0.7:
            self.settle(query)
        else:
            self._loose.append(query)
        self._run("pause", f"PAUSE {query.id};")
        query.paused = True

    def resume(self) -> None:
        query = self._some_query(paused=True)
        if query is None:
            return self.pause()
        self._run("resume", f"RESUME {query.id};")
        query.paused = False
        self._loose = [each for each in self._loose if each is not query]
        self.model.run()

    def reset(self) -> None:
        """What reads the sink has read it before: it keeps what it made of the old rows."""
        query = self._some_query()
        if query is None or self._touches_loose(query.writes) or self._touches_loose(query.reads):
            return self.derive()
        for below in [each for each in self.model.queries if each.reads in self.model.downstream(query.writes)]:
            if below.paused:
                return self.insert()
            self.settle(below)
        self.settle(query)
        self._run("reset", f"RESET {query.id};")
        self.model.reset(query)

    def terminate(self) -> None:
        query = self._some_query()
        if query is None or query in self._loose:
            return self.insert()
        self.settle(query)
        self._run("terminate", f"TERMINATE {query.id};")
        self.model.queries.remove(query)

    def drop(self) -> None:
        source = self._some(list(self.model.sources.values()))
        if source is None:
            return self.create()
        if not self.model.droppable(source):
            return self._refused(f"DROP {source.kind} {source.name};")
        if any(query in self._loose for query in self.model.writers(source)):
            return self.resume()  # nobody would know what its topic holds
        for query in self.model.writers(source):
            self.settle(query)
        with_topic = self.random.random() < 0.6 and len(self.model.sharing(source.topic)) == 1
        self._run("drop", f"DROP {source.kind} {source.name}{' DELETE TOPIC' if with_topic else ''};")
        self.model.drop(source, with_topic=with_topic)

    def alter(self) -> None:
        source = self._some(
            [each for each in self.model.sources.values() if not self.model.writers(each) and not each.made]
        )
        if source is None:
            return self.create()
        source.added += 1
        self._run("alter", f"ALTER {source.kind} {source.name} ADD COLUMN x{source.added} STRING;")

    def look(self) -> None:
        source = self._some(list(self.model.sources.values()))
        if source is None:
            return self.create()
        self._run("describe", f"DESCRIBE {source.name}{self.random.choice((' EXTENDED', ''))};")
        query = self._some_query()
        if query is not None:
            self._run("explain", f"EXPLAIN {query.id};")
        self._run("show", self.random.choice(_LOOKS))
        if self.random.random() < 0.2 and not self._touches_loose(source):
            self._check_rows(source)

    def wrong(self) -> None:
        source = self._some(list(self.model.sources.values()))
        if source is None:
            return self._refused(self.random.choice(_WRONG))
        other = "TABLE" if source.kind == "STREAM" else "STREAM"
        statement = self.random.choice((*_WRONG, *_WRONG_ABOUT))
        return self._refused(statement.format(name=source.name, kind=source.kind, other=other))

    def _touches_loose(self, source: Source) -> bool:
        return any(source in self.model.downstream(query.writes) for query in self._loose)

    def drop_everything(self) -> None:
        self._run("terminate", "TERMINATE ALL;")
        self.model.queries.clear()
        self._loose.clear()
        for source in list(self.model.sources.values()):
            self._run("drop", f"DROP {source.kind} {source.name};")
            self.model.drop(source, with_topic=False)
        for topic in list(self.model.topics.values()):
            self._run(
                "create", f"CREATE STREAM last (v BIGINT) WITH (kafka_topic='{topic.name}', value_format='JSON');"
            )
            self._run("drop", "DROP STREAM last DELETE TOPIC;")
            del self.model.topics[topic.name]


def _stream_shape(shape: str, amount: int) -> tuple[str, Process, tuple[str, ...], bool, str]:
    """What is selected and what comes of it: the columns, whether they are a table's, and the rest of the SELECT."""
    match shape:
        case "plus":
            return f"k, v + {amount} AS v", plus(amount), ("V",), False, ""
        case "odd":
            return f"k, v + {amount} AS v", odd(amount), ("V",), False, " WHERE v % 2 = 1"
        case "moved":
            return (
                f"CAST(v AS INT) AS k, CAST(k + {amount} AS BIGINT) AS v",
                moved(amount),
                ("V",),
                False,
                " PARTITION BY CAST(v AS INT)",
            )
        case _:
            return "k, COUNT(*) AS n, SUM(v) AS s", counted, ("N", "S"), True, " GROUP BY k"


_WRONG: Final = (
    "SELECT;", "PAUSE NOBODY;", "RESUME NOBODY_1;", "RESET X;", "TERMINATE X;", "EXPLAIN X;", "DESCRIBE NOBODY;",
    "DROP STREAM NOBODY;", "CREATE STREAM Z AS SELECT * FROM NOBODY;",
    "CREATE STREAM Z (v INT) WITH (kafka_topic='not there', value_format='JSON', partitions=1);",
    "CREATE TABLE Z (k INT PRIMARY KEY, v INT) WITH (kafka_topic='nowhere', value_format='JSON');",
)  # fmt: skip
_WRONG_ABOUT: Final = (
    "DROP {other} {name};", "CREATE STREAM Z AS SELECT nope FROM {name};", "ALTER {other} {name} ADD COLUMN q INT;",
    "INSERT INTO {name} (nope) VALUES (1);", "INSERT INTO {name} VALUES ('a', 'b');",
    "CREATE {kind} {name} (v INT) WITH (kafka_topic='q', value_format='JSON', partitions=1);",
)  # fmt: skip
_LOOKS: Final = (
    "SHOW STREAMS EXTENDED;", "SHOW TABLES EXTENDED;", "SHOW QUERIES EXTENDED;", "SHOW PROPERTIES;", "SHOW TYPES;",
    "SHOW FUNCTIONS;", "SHOW ALL TOPICS;",
)  # fmt: skip
_KINDS: Final[tuple[tuple[Callable[[CatalogWalk], None], int], ...]] = (
    (CatalogWalk.create, 4), (CatalogWalk.derive, 6), (CatalogWalk.insert_select, 2), (CatalogWalk.replace, 3),
    (CatalogWalk.insert, 14), (CatalogWalk.delete, 3), (CatalogWalk.pause, 3), (CatalogWalk.resume, 4),
    (CatalogWalk.reset, 2), (CatalogWalk.terminate, 2), (CatalogWalk.drop, 6), (CatalogWalk.alter, 2),
    (CatalogWalk.look, 6), (CatalogWalk.wrong, 4),
)  # fmt: skip
