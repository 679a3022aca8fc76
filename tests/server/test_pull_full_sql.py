"""Pull queries with all of SQL: their answers are DuckDB's over the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from millstream.errors import MillstreamError
from millstream.testing import Sandbox

SOURCES = """
CREATE STREAM orders (id INT KEY, customer INT, amount INT, note STRING)
  WITH (kafka_topic='orders', value_format='JSON', partitions=3);
CREATE TABLE customers (id INT PRIMARY KEY, city STRING, age INT)
  WITH (kafka_topic='customers', value_format='JSON', partitions=3);
CREATE TABLE cities (city STRING PRIMARY KEY, country STRING)
  WITH (kafka_topic='cities', value_format='JSON', partitions=2);
CREATE TABLE spent WITH (partitions=3) AS
  SELECT customer, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY customer;
"""

QUERIES = [
    "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 7 OFFSET 3",
    "SELECT id, note FROM orders WHERE amount > 50 ORDER BY note NULLS FIRST, id DESC LIMIT 9",
    "SELECT id, amount * 2 AS twice FROM orders ORDER BY twice % 7, 1",
    (
        "SELECT customer, COUNT(*) AS n, SUM(amount) AS total, MIN(amount) AS lo, MAX(amount) AS hi FROM orders "
        "GROUP BY customer ORDER BY customer"
    ),
    "SELECT customer FROM orders GROUP BY customer HAVING COUNT(*) > 4 ORDER BY SUM(amount) DESC, customer LIMIT 3",
    "SELECT amount % 3 AS rest, COUNT(*) AS n FROM orders WHERE note IS NOT NULL GROUP BY amount % 3 ORDER BY n, rest",
    "SELECT COUNT(*) AS n, MAX(amount) AS hi, COUNT(DISTINCT customer) AS d FROM orders WHERE amount < 30",
    "SELECT COUNT(*) AS n, MAX(amount) AS hi FROM orders WHERE amount > 1000",
    "SELECT DISTINCT customer FROM orders ORDER BY customer DESC",
    "SELECT o.id, c.city, o.amount FROM orders o JOIN customers c ON o.customer = c.id ORDER BY o.id, o.amount",
    "SELECT o.id, c.city FROM orders o LEFT JOIN customers c ON o.customer = c.id ORDER BY c.city NULLS LAST, o.id",
    "SELECT city, COUNT(*) AS n, SUM(age) AS years FROM customers GROUP BY city ORDER BY n DESC, city",
    "SELECT COUNT(*) AS n FROM customers WHERE age > 40",
    "SELECT c.id, c.age, t.country FROM customers c JOIN cities t ON c.city = t.city ORDER BY c.id",
    "SELECT c.id, c.age, s.total FROM customers c LEFT JOIN spent s ON c.id = s.customer ORDER BY s.total DESC, c.id",
    (
        "SELECT t.country, SUM(o.amount) AS total FROM orders o JOIN customers c ON o.customer = c.id "
        "JOIN cities t ON c.city = t.city GROUP BY t.country ORDER BY total"
    ),
    (
        "SELECT q.n, COUNT(*) AS customers FROM (SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer) q "
        "GROUP BY q.n ORDER BY q.n"
    ),
    "SELECT customer, total FROM spent WHERE total > 100 ORDER BY total, customer LIMIT 5",
    (
        "SELECT a.id, b.id AS other FROM orders a JOIN orders b WITHIN 1 DAY ON a.customer = b.customer "
        "WHERE a.id < b.id ORDER BY a.id, b.id LIMIT 20"
    ),
    "SELECT * FROM (SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 9 OFFSET 2) q ORDER BY id LIMIT 5",
    "SELECT COUNT(*) AS n, SUM(amount) AS total FROM (SELECT * FROM orders ORDER BY note, amount, id LIMIT 20) q",
    "SELECT COUNT(*) AS n FROM (SELECT id FROM orders LIMIT 0) q",
    "SELECT COUNT(*) AS n FROM (SELECT id FROM customers OFFSET 3) q",
    "SELECT age, COUNT(*) AS n FROM (SELECT * FROM customers ORDER BY age, id LIMIT 4) q GROUP BY age ORDER BY age",
    (
        "SELECT n, customer FROM (SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer "
        "ORDER BY 2 DESC, customer LIMIT 4) q WHERE customer > 2 ORDER BY n, customer"
    ),
    (
        "SELECT o.id, c.city FROM (SELECT id, customer FROM orders ORDER BY amount, id LIMIT 10) o "
        "JOIN customers c ON o.customer = c.id ORDER BY o.id"
    ),
    "SELECT note FROM (SELECT DISTINCT note FROM orders ORDER BY note NULLS LAST LIMIT 2) q ORDER BY note DESC",
    (
        "WITH dear AS (SELECT id, amount * 2 AS twice FROM orders ORDER BY twice DESC, id LIMIT 12), "
        "few AS (SELECT id, twice FROM dear ORDER BY id DESC LIMIT 5) SELECT id, twice FROM few ORDER BY twice, id"
    ),
    (
        "SELECT id FROM (SELECT id, customer, amount FROM orders QUALIFY ROW_NUMBER() OVER "
        "(PARTITION BY customer ORDER BY amount, id) <= 2 ORDER BY amount DESC, id LIMIT 6) q ORDER BY id"
    ),
    "SELECT id FROM customers WHERE EXISTS (SELECT 1 FROM orders WHERE customer = customers.id LIMIT 1) ORDER BY id",
    "SELECT * FROM (SELECT COUNT(*) AS n, MAX(amount) AS hi FROM orders) q LIMIT 10",
    "SELECT n + 1 AS more FROM (SELECT COUNT(*) AS n FROM orders WHERE amount > 1000) q",
    "SELECT n FROM (SELECT COUNT(*) AS n FROM orders) q WHERE n = 0",
    "SELECT COUNT(*) AS m FROM (SELECT COUNT(*) AS n FROM orders) q WHERE n = 0",
    "SELECT SUM(n) AS s, COUNT(*) AS m FROM (SELECT COUNT(*) AS n FROM orders WHERE amount > 1000) q",
    "SELECT SUM(n) AS s FROM (SELECT customer, COUNT(*) AS n FROM orders WHERE amount > 1000 GROUP BY customer) q",
    "WITH many AS (SELECT COUNT(*) AS n FROM customers LIMIT 1) SELECT n FROM many ORDER BY n LIMIT 5",
    "SELECT COUNT(*) AS n FROM (SELECT id FROM customers WHERE age > 1000 ORDER BY id LIMIT 3) q",
    "SELECT n FROM (SELECT COUNT(*) AS n FROM orders WHERE amount > 1000 ORDER BY n LIMIT 3) q",
    *(
        f"SELECT q.n, c.city FROM (SELECT COUNT(*) AS n, MAX(customer) AS c FROM orders WHERE amount > {above}) q "
        "LEFT JOIN customers c ON q.c = c.id"
        for above in (0, 1000)
    ),
    # The order of a query in FROM is that of the answer, unless there is another one.
    "SELECT * FROM (SELECT id, amount FROM orders ORDER BY amount DESC, id) q LIMIT 6",
    "SELECT id FROM (SELECT id, city AS place FROM customers ORDER BY city NULLS LAST, id) q WHERE id > 2 LIMIT 3",
    "SELECT a AS b FROM (SELECT id AS a FROM (SELECT id, age FROM customers ORDER BY id DESC) p LIMIT 4) q LIMIT 3",
    "WITH o AS (SELECT * FROM orders ORDER BY id DESC), p AS (SELECT id FROM o LIMIT 8) SELECT id FROM p LIMIT 5",
    "WITH orders AS (SELECT * FROM orders) SELECT COUNT(*) AS n FROM orders",
    "SELECT id, amount FROM orders UNION ALL SELECT customer, id FROM orders ORDER BY 2 DESC, id LIMIT 9 OFFSET 4",
    "SELECT id AS a FROM orders UNION ALL SELECT customer FROM orders ORDER BY a % 5, a OFFSET 3",
]


class Both:
    """The same rows in a Sandbox and in DuckDB."""

    def __init__(self, seed: int) -> None:
        self.sandbox = Sandbox(properties={"millstream.pull.full.sql": "true"})
        self.sandbox.execute(SOURCES)
        self.duckdb = duckdb.connect()
        self.duckdb.execute("CREATE TABLE orders (id INT, customer INT, amount INT, note VARCHAR)")
        self.duckdb.execute("CREATE TABLE customers (id INT PRIMARY KEY, city VARCHAR, age INT)")
        self.duckdb.execute("CREATE TABLE cities (city VARCHAR PRIMARY KEY, country VARCHAR)")
        self._fill(random.Random(seed))
        self.sandbox.drain()
        self.duckdb.execute(
            "CREATE VIEW spent AS SELECT customer, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY customer"
        )

    def _fill(self, random_: random.Random) -> None:
        for city, country in (("Ulm", "DE"), ("Bonn", "DE"), ("Lyon", "FR"), ("Oslo", "NO")):
            self.sandbox.produce("cities", city, {"COUNTRY": country})
            self.duckdb.execute("INSERT INTO cities VALUES (?, ?)", [city, country])
        for number in range(60):
            customer = random_.randrange(12)
            if random_.random() < 0.5:
                self._put_customer(random_, customer)
            amount, note = random_.randrange(100), random_.choice([None, "a", "b", "c"])
            order = {"CUSTOMER": customer, "AMOUNT": amount, "NOTE": note}
            self.sandbox.produce("orders", number, order, timestamp=number)
            self.duckdb.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", [number, customer, amount, note])

    def _put_customer(self, random_: random.Random, customer: int) -> None:
        self.duckdb.execute("DELETE FROM customers WHERE id = ?", [customer])
        if random_.random() < 0.2:
            self.sandbox.produce("customers", customer, None)
            return
        city, age = random_.choice(["Ulm", "Bonn", "Lyon", "Rome"]), random_.randrange(20, 70)
        self.sandbox.produce("customers", customer, {"CITY": city, "AGE": age})
        self.duckdb.execute("INSERT INTO customers VALUES (?, ?, ?)", [customer, city, age])

    def ask(self, query: str) -> list[list[Any]]:
        return [row["row"]["columns"] for row in self.sandbox.query(f"{query};") if "row" in row]

    def expected(self, query: str) -> list[list[Any]]:
        return [list(row) for row in self.duckdb.execute(query.replace("WITHIN 1 DAY", "")).fetchall()]


@pytest.fixture(scope="module", params=[1, 2])
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    made = Both(request.param)
    yield made
    made.sandbox.close()


@pytest.mark.parametrize("query", QUERIES)
def test_an_answer_is_that_of_a_database_with_the_same_rows(both: Both, query: str) -> None:
    assert both.ask(query) == both.expected(query)


def test_windows_are_those_of_a_persistent_query(both: Both) -> None:
    window = "FROM orders WINDOW TUMBLING (SIZE 10 MILLISECONDS) GROUP BY customer"
    answer = both.ask(f"SELECT customer, WINDOWSTART AS w, COUNT(*) AS n {window} ORDER BY customer, w")
    expected = both.expected(
        "SELECT customer, id // 10 * 10 AS w, COUNT(*) AS n FROM orders GROUP BY ALL ORDER BY customer, w"
    )
    assert answer == expected


def test_a_table_function_gives_rows(both: Both) -> None:
    answer = both.ask("SELECT id, EXPLODE(ARRAY[amount, -1]) AS x FROM orders WHERE id < 3 ORDER BY id, x")
    expected = both.expected(
        "SELECT id, unnest(x) AS x FROM (SELECT id, [amount, -1] AS x FROM orders WHERE id < 3) ORDER BY id, x"
    )
    assert answer == expected


def test_the_place_of_a_record_can_be_asked_for(both: Both) -> None:
    places = both.ask("SELECT ROWPARTITION, ROWOFFSET FROM orders ORDER BY ROWPARTITION DESC, ROWOFFSET LIMIT 2")
    assert places == [[2, 0], [2, 1]]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT id FROM orders ORDER BY 2", "there are 1 selected columns"),
        ("SELECT id FROM orders ORDER BY nothing", "NOTHING"),
        ("SELECT DISTINCT customer FROM orders ORDER BY amount", "names selected columns, which AMOUNT is not"),
        ("SELECT id FROM orders ORDER BY id EMIT CHANGES", "ORDER BY needs an answer that ends"),
        ("SELECT id FROM orders LIMIT 1 OFFSET 1 EMIT CHANGES", "EMIT CHANGES stands before LIMIT"),
        ("SELECT * FROM (SELECT id FROM orders LIMIT 1) q EMIT CHANGES", "FROM or WITH cannot have LIMIT while"),
        ("SELECT * FROM (SELECT * FROM orders ORDER BY 2 LIMIT 1) q", "ORDER BY 2: the SELECT of this query in FROM"),
        ("SELECT * FROM (SELECT id FROM orders ORDER BY 0 LIMIT 1) q", "ORDER BY 0: the SELECT of this query in FROM"),
        ("SELECT * FROM (SELECT DISTINCT id FROM orders ORDER BY amount LIMIT 1) q", "names selected columns"),
        *(
            (f"SELECT id FROM orders {clause} 1 UNION ALL SELECT id FROM orders", f"UNION ALL cannot have {clause}")
            for clause in ("LIMIT", "OFFSET", "ORDER BY")
        ),
        ("SELECT id, COUNT(*) FROM orders", "GROUP BY"),
        ("SELECT id FROM orders WHERE COUNT(*) > 1", "HAVING"),
    ],
)
def test_mistakes_are_named(both: Both, query: str, message: str) -> None:
    with pytest.raises(MillstreamError) as raised:
        both.ask(query)
    assert message in f"{raised.value} {raised.value.hint}"


def test_explain_shows_the_plan_and_what_is_asked_of_its_rows(both: Both) -> None:
    answer = both.sandbox.execute("EXPLAIN SELECT customer, COUNT(*) FROM orders GROUP BY customer ORDER BY 2;")
    text = answer[0]["queryDescription"]["executionPlan"]
    assert "AGGREGATE COUNT()" in text and "ORDER BY 2 ASC NULLS LAST" in text
