"""What is refused, with the words that ksqlDB's users search for; where ours say more, theirs are among them."""

from __future__ import annotations

import pytest
from planning import Planner

from millstream.errors import StatementError

SOURCES = """
CREATE STREAM clicks (id INT KEY, url STRING, size INT) WITH (topic_properties);
CREATE STREAM views (id INT KEY, url STRING, size INT, tags MAP<STRING, INT>) WITH (topic_properties);
CREATE STREAM traced (id INT KEY, url STRING, trace BYTES HEADER('trace')) WITH (topic_properties);
CREATE TABLE pages (url STRING PRIMARY KEY, owner INT) WITH (topic_properties);
CREATE TABLE users (id INT PRIMARY KEY, page STRING) WITH (topic_properties);
CREATE TABLE hours (id STRING PRIMARY KEY, n INT) WITH (hourly, topic_properties);
CREATE TABLE days (id STRING PRIMARY KEY, n STRING) WITH (hourly, topic_properties);
"""
REFUSED = {
    "CREATE STREAM o AS SELECT MAP() AS m, url FROM clicks;": "at least one key value pair",
    "CREATE STREAM o AS SELECT MAP('a' := NULL) AS m FROM clicks;": "Cannot construct a map with all NULL values",
    "CREATE STREAM o AS SELECT MAP(NULL := 1) AS m FROM clicks;": "Cannot construct a map with all NULL keys",
    "CREATE STREAM o AS SELECT ARRAY[NULL] AS a FROM clicks;": "Cannot construct an array with all NULL elements",
    "CREATE STREAM o AS SELECT id, id AS again, url FROM clicks;": (
        "contains a key column (`ID`) more than once, aliased as: AGAIN and ID"
    ),
    "CREATE TABLE o AS SELECT url, url AS again, COUNT(*) FROM clicks GROUP BY url;": (
        "The projection contains a key column more than once: `AGAIN` and `URL`."
    ),
    "CREATE STREAM o AS SELECT url FROM clicks PARTITION BY LEN(url);": (
        "must include the partitioning expression LEN(CLICKS.URL) in its projection (eg, SELECT LEN(CLICKS.URL)...)."
    ),
    "CREATE STREAM o AS SELECT c.url FROM clicks c JOIN views v WITHIN 1 HOUR ON LEN(c.url) = LEN(v.url);": (
        "Key missing from projection (ie, SELECT). See https://cnfl.io/2LV7ouS.\n"
        "The query used to build `O` must include the join expression ROWKEY"
    ),
    "CREATE STREAM o AS SELECT c.id, c.url FROM clicks c JOIN views v WITHIN 1 DAY ON c.id = v.id "
    "WHERE c.url > v.size;": (
        "Error in WHERE expression: Cannot compare C_URL (STRING) to V_SIZE (INTEGER) with GREATER_THAN."
    ),
    "CREATE STREAM o AS SELECT * FROM clicks c JOIN views v WITHIN 1 HOUR ON c.id > v.id;": (
        "Only equality join criteria is supported."
    ),
    "CREATE STREAM o AS SELECT v.tags, c.id FROM views v JOIN views c WITHIN 1 HOUR ON v.tags = c.tags;": (
        "Key column name: `V_TAGS`. Column type: MAP<STRING, INTEGER>."
    ),
    "CREATE STREAM o AS SELECT * FROM clicks c JOIN pages p ON c.size = p.owner JOIN users u ON c.id = c.id;": (
        "Each side of the join must reference exactly one source and not the same source."
    ),
    "CREATE TABLE o AS SELECT * FROM users u JOIN pages p ON u.page = p.url JOIN clicks c ON u.id = c.id;": (
        "only stream-table joins. Got USERS [INNER] JOIN CLICKS."
    ),
    "CREATE TABLE o AS SELECT * FROM users u FULL JOIN pages p ON u.page = p.url;": (
        "full-outer join not supported for foreign-key table-table join. Got USERS [FULL] OUTER JOIN PAGES."
    ),
    "CREATE TABLE o AS SELECT * FROM days d JOIN hours h ON d.n = h.id;": (
        "Foreign-key table-table joins are not supported on windowed tables."
    ),
    "CREATE TABLE o AS SELECT url, size + COUNT(*) FROM clicks GROUP BY url;": (
        "Either add the column(s) to the GROUP BY or remove them from the SELECT."
    ),
    "CREATE TABLE o AS SELECT url, COUNT(*) FROM clicks GROUP BY url HAVING size + 1 > 2;": (
        "Non-aggregate HAVING expression not part of GROUP BY: SIZE\nConsider switching the HAVING clause to a WHERE"
    ),
    "CREATE TABLE o AS SELECT url, COUNT(*) FROM clicks GROUP BY url HAVING COUNT(*) > 1 AND nope = 1;": (
        "HAVING column 'NOPE' cannot be resolved."
    ),
    "CREATE TABLE o AS SELECT url, COUNT(*) + nope FROM clicks GROUP BY url;": (
        "SELECT column 'NOPE' cannot be resolved."
    ),
    "CREATE TABLE o AS SELECT url, SUM(COUNT(size)) FROM clicks GROUP BY url;": (
        "Aggregate functions can not be nested: SUM(COUNT())"
    ),
    "CREATE STREAM o AS SELECT id, EXPLODE(EXPLODE(ARRAY[ARRAY[1]])) AS e FROM clicks;": (
        "Table functions cannot be nested: EXPLODE(EXPLODE())"
    ),
    "CREATE STREAM o AS SELECT id, CASE WHEN size > 1 THEN EXPLODE(ARRAY[1]) ELSE 2 END AS e FROM clicks;": (
        "Table functions cannot be used in CASE: (CASE WHEN (SIZE > 1) THEN EXPLODE(ARRAY[1]) ELSE 2 END)"
    ),
    "CREATE TABLE o AS SELECT url, EXPLODE(ARRAY[owner]) AS e FROM pages;": (
        "Table source is not supported with table functions"
    ),
    "CREATE STREAM o AS SELECT id, TRANSFORM(ARRAY[1], size => size + 1) AS a FROM clicks;": (
        "Lambda function argument can't be a column name: SIZE"
    ),
    "CREATE TABLE o AS SELECT url, TRANSFORM(COLLECT_LIST(id), size => size + 1) AS a FROM clicks GROUP BY url;": (
        "Lambda function argument can't be a column name: SIZE"
    ),
    "CREATE STREAM o AS SELECT id, TRANSFORM(ARRAY[1], x => TRANSFORM(ARRAY[2], x => x)) AS a FROM clicks;": (
        "Reusing lambda arguments in nested lambda is not allowed"
    ),
    "CREATE TABLE o AS SELECT url, TRANSFORM(COLLECT_LIST(id), x => TRANSFORM(ARRAY[2], x => x)) AS a FROM clicks "
    "GROUP BY url;": "Reusing lambda arguments in nested lambda is not allowed",
    "CREATE STREAM o AS SELECT c.id, c.size FROM clicks c JOIN views c WITHIN 1 HOUR ON c.id = c.id;": (
        "Can not join 'C' to 'C': self joins are not yet supported."
    ),
    "CREATE STREAM o AS SELECT id, size[1] AS a FROM clicks;": (
        "Subscript expression (SIZE[1]) do not apply to INTEGER."
    ),
    "CREATE STREAM o AS SELECT id, STRUCT(a := size)->b AS a FROM clicks;": (
        "Could not find field 'B' in 'STRUCT(A:=SIZE)'."
    ),
    "CREATE STREAM o (id INT KEY, s STRUCT<a INT, A STRING>) WITH (topic_properties);": (
        "Duplicate field names found in STRUCT: '`A` INTEGER' and '`A` STRING'"
    ),
    "CREATE STREAM o AS SELECT id, STRUCT(a := 1, a := 'x') AS s FROM clicks;": (
        "Duplicate field names found in STRUCT: '`A` INTEGER' and '`A` STRING'"
    ),
    "CREATE STREAM o (id INT KEY, n INT) WITH (kafka_topic='t', value_format='JSON', partitions=1, "
    "window_type='HOPPING', window_size='10');": (
        "Error in WITH clause property 'WINDOW_SIZE': Invalid duration: '10'. Expected 2 tokens, got: 1\n"
        "Example valid value: '10 SECONDS'"
    ),
    "CREATE STREAM o (id INT KEY, n INT) WITH (kafka_topic='t', value_format='JSON', partitions=1, "
    "window_type='HOPPING', window_size='1 year');": ("Invalid duration: '1 year'. Unknown time unit: 'YEAR'"),
    "CREATE STREAM o (id INT KEY, n INT) WITH (kafka_topic='t', value_format='JSON', partitions=1, "
    "window_type='HOPPING', window_size='x days');": ("Invalid duration: 'x days'. Not numeric: 'x'"),
    "CREATE STREAM o (id INT KEY, n INT) WITH (kafka_topic='t', value_format='JSON', partitions=1, "
    "window_type='HOPPING', window_size='² days');": ("Invalid duration: '² days'. Not numeric: '²'"),
    "CREATE TABLE o (id INT PRIMARY KEY, n INT) WITH (kafka_topic='t', value_format='JSON', partitions=1, "
    "ttl='1000000001 days');": ("Invalid duration: '1000000001 days'. It can be 1000000000 DAYS at most."),
    "CREATE TABLE o (id INT PRIMARY KEY, n INT) WITH (kafka_topic='t', value_format='JSON', partitions=1, "
    f"ttl='{'9' * 5_000} days');": f"Invalid duration: '{'9' * 5_000} days'. It can be 1000000000 DAYS at most.",
    "CREATE TABLE o AS SELECT url, COUNT(*) FROM clicks WINDOW TUMBLING (SIZE 1 HOUR) WHERE windowstart > 1 "
    "GROUP BY url;": "Error in WHERE expression: Unknown column WINDOWSTART.",
    "CREATE TABLE o AS SELECT url, COUNT(*) FROM clicks WINDOW TUMBLING (SIZE 1 HOUR) WHERE MAX(windowend) > 1 "
    "GROUP BY url;": "Error in WHERE expression: Unknown column WINDOWEND.",
    "CREATE TABLE o AS SELECT url, COUNT(*) FROM clicks WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY url "
    "HAVING MIN(windowstart) > 1;": (
        "Window bounds column WINDOWSTART can only be used in the SELECT clause of windowed aggregations"
    ),
    "CREATE STREAM o AS SELECT * FROM clicks WHERE size LIKE '1%';": (
        "The column type for Like condition must be VARCHAR. The column type is INTEGER"
    ),
    "INSERT INTO views SELECT id, url, size FROM clicks;": (
        "Result schema is `ID` INTEGER KEY, `URL` STRING, `SIZE` INTEGER\nSink schema is `ID` INTEGER KEY, "
    ),
    "CREATE STREAM o AS SELECT id, STRUCT(a := STRUCT(b := NULL)) AS s FROM clicks;": (
        "Can't infer a type of null. Please explicitly cast it to a required type, e.g. CAST(null AS VARCHAR)."
    ),
    "CREATE STREAM o AS SELECT foo.bar FROM clicks;": (
        "Failed to prepare statement: 'FOO' is not a valid stream/table name or alias."
    ),
    "CREATE STREAM o AS SELECT c.id, url\nFROM clicks c JOIN views v WITHIN 1 HOUR ON c.id = v.id;": (
        "Exception while preparing statement: Line: 1, Col: 33: Column 'URL' is ambiguous. Could be C.URL or V.URL."
    ),
    "CREATE STREAM o AS SELECT id, CASE WHEN size THEN 1 END AS c FROM clicks;": (
        "WHEN operand type should be boolean.\nType for 'SIZE' is INTEGER"
    ),
    "CREATE STREAM o AS SELECT id, CASE WHEN size > 1 THEN 1 WHEN size > 2 THEN 'b' END AS c FROM clicks;": (
        "Type for all 'THEN' clauses should be the same.\nTHEN expression ''b'' has type: STRING.\n"
        "Previous THEN expression(s) type: INTEGER."
    ),
    "CREATE STREAM o AS SELECT id, CASE WHEN size > 1 THEN 1 ELSE 'b' END AS c FROM clicks;": (
        "Type for the default clause should be the same as for 'THEN' clauses.\nTHEN type: INTEGER.\n"
        "DEFAULT type: STRING"
    ),
    "CREATE TABLE o AS SELECT id, page FROM users PARTITION BY page;": (
        "PARTITION BY clause is only supported on streams."
    ),
    "CREATE STREAM o AS SELECT url, COUNT(*) FROM clicks;": (
        "Use of aggregate function COUNT requires a GROUP BY clause."
    ),
    "CREATE STREAM o (said STRING) WITH (timestamp='said', kafka_topic='o', value_format='JSON', partitions=1);": (
        "A String timestamp field has been specified without also specifying the timestamp_format"
    ),
    "CREATE STREAM o (said STRING) WITH (timestamp='said', timestamp_format='yyyy-MM-ddTHH', kafka_topic='o', "
    "value_format='JSON', partitions=1);": "'yyyy-MM-ddTHH' is no pattern of Java's DateTimeFormatter",
    "INSERT INTO traced SELECT id, url FROM clicks;": "Cannot insert into TRACED because it has header columns",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_the_refusal_has_ksqldbs_words(statement: str) -> None:
    planner = Planner()
    for number, source in enumerate(SOURCES.strip().splitlines()):
        topic = f"kafka_topic='t{number}', value_format='JSON', partitions=1"
        list(
            planner.plans(
                source.replace("topic_properties", topic).replace(
                    "hourly", "window_type='TUMBLING', window_size='1 HOUR'"
                )
            )
        )
    with pytest.raises(StatementError) as refused:
        list(planner.plans(statement))
    refused.value.text = statement
    assert REFUSED[statement] in str(refused.value)


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("who.name", "WHO is a struct: write WHO->NAME for its field."),
        ("who.`first`", "WHO is a struct: write WHO->`first` for its field."),
        ("who.nick", "WHO is a struct, with the fields NAME and first: write WHO->… for one of them."),
        ("url.name", "FROM calls its sources PEOPLE here."),
    ],
)
def test_a_field_of_a_struct_behind_a_dot_is_told_the_arrow(written: str, hint: str) -> None:
    people = "CREATE STREAM people (id INT KEY, url STRING, who STRUCT<name STRING, `first` STRING>)"
    with_clause = "WITH (kafka_topic='p', value_format='JSON', partitions=1);"
    with pytest.raises(StatementError) as refused:
        list(Planner().plans(f"{people} {with_clause} CREATE STREAM o AS SELECT id, {written} AS x FROM people;"))
    assert refused.value.hint == hint
