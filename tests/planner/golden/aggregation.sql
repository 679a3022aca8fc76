CREATE STREAM clicks (id INT KEY, url STRING, size BIGINT) WITH (kafka_topic='clicks', value_format='JSON', partitions=2);
CREATE TABLE users (id INT PRIMARY KEY, town STRING, age INT) WITH (kafka_topic='users', value_format='JSON', partitions=2);
CREATE TABLE per_id AS SELECT id, COUNT(*) AS n FROM clicks GROUP BY id;
CREATE TABLE per_url AS SELECT url, COUNT(*), SUM(size) + COUNT(*) AS both FROM clicks GROUP BY url;
CREATE TABLE per_minute AS SELECT url, WINDOWSTART AS start, COUNT(*) AS n FROM clicks
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS) GROUP BY url EMIT CHANGES;
CREATE TABLE hops AS SELECT url, COUNT(*) AS n FROM clicks WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 10 MINUTES) GROUP BY url;
CREATE TABLE finals AS SELECT id, MAX(size) AS top FROM clicks WINDOW SESSION (30 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY id EMIT FINAL;
CREATE TABLE busy AS SELECT url, COUNT(*) AS n FROM clicks GROUP BY url HAVING COUNT(*) > 2 AND url <> '';
CREATE TABLE towns AS SELECT town, COUNT(*) AS n, AVG(age) AS age FROM users WHERE age > 17 GROUP BY town;
CREATE TABLE oldest AS SELECT town, MAX(age) AS age FROM users GROUP BY town;
CREATE TABLE ungrouped AS SELECT url, size, COUNT(*) FROM clicks GROUP BY url;
CREATE TABLE no_group AS SELECT COUNT(*) FROM clicks;
CREATE TABLE nested AS SELECT url, SUM(COUNT(*)) FROM clicks GROUP BY url;
CREATE TABLE no_aggregate AS SELECT url FROM clicks GROUP BY url;
CREATE TABLE no_window AS SELECT url, COUNT(*) FROM clicks GROUP BY url EMIT FINAL;
CREATE TABLE by_sum AS SELECT COUNT(*) FROM clicks GROUP BY SUM(size);
CREATE TABLE no_key AS SELECT COUNT(*) AS n FROM clicks GROUP BY url;

CREATE TABLE unknown_function AS SELECT no_such(id), COUNT(*) FROM clicks GROUP BY no_such(id);

CREATE TABLE bounds_in_group_by AS SELECT id, COUNT(*) FROM clicks WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY id, WINDOWSTART;

CREATE TABLE having_compares_types AS SELECT id, COUNT(*) AS n FROM clicks GROUP BY id HAVING COUNT(*) > '1';

CREATE TABLE not_a_constant AS SELECT id, EARLIEST_BY_OFFSET(url, id) AS u FROM clicks GROUP BY id;

CREATE TABLE limited AS SELECT id, COUNT(*) AS n FROM clicks GROUP BY id LIMIT 1;
CREATE TABLE near_name AS SELECT ulr, COUNT(*) AS n FROM clicks GROUP BY url;

CREATE TABLE top_of_less_than_none AS SELECT url, TOPK(id, -1.5) AS top FROM clicks GROUP BY url;
