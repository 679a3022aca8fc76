SELECT * FORM clicks EMIT CHANGES;

SELCT * FROM clicks;

CREATE STRAEM s (a INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);

SHOW STREAMS SELECT * FROM clicks;

SELECT * FROM clicks WHERE url == '/home' EMIT CHANGES;

SELECT * FROM clicks WHERE url = "/home" EMIT CHANGES;

SELECT * FROM clicks WHERE url = ‘/home’ EMIT CHANGES;

SELECT * FROM clicks WHERE url = '/home EMIT CHANGES;

SELECT url, amount, FROM clicks EMIT CHANGES;

SELECT * FROM clicks # all of them

SELECT * FROM clicks WHERE amount != NULL AND url IS 'x' EMIT CHANGES;

SELECT * FROM clicks WHERE amount = NULL EMIT CHANGES;

SELECT * FROM click EMIT CHANGES;

SELECT ur FROM clicks EMIT CHANGES;

SELECT c.url FROM clicks k EMIT CHANGES;

SELECT "url" FROM clicks EMIT CHANGES;

SELECT UPPER(url) AS u, LENGHT(url) FROM clicks EMIT CHANGES;

SELECT LEN(url, 3) FROM clicks EMIT CHANGES;

SELECT url + amount * url FROM clicks EMIT CHANGES;

SELECT * FROM clicks WHERE amount > '5' AND url > 3 EMIT CHANGES;

SELECT * FROM clicks WHERE amount EMIT CHANGES;

SELECT url::VARCHAR FROM clicks EMIT CHANGES;

SELECT CAST(url AS DATETIME) FROM clicks EMIT CHANGES;

SELECT * FROM clicks WHERE url ILIKE '%home%' EMIT CHANGES;

SELECT IF(amount > 1, 'a', 'b') FROM clicks EMIT CHANGES;

SELECT * FROM clicks WHERE COUNT(*) > 3 EMIT CHANGES;

SELECT url, COUNT(*) FROM clicks EMIT CHANGES;

SELECT url, amount, COUNT(*) FROM clicks GROUP BY url EMIT CHANGES;

SELECT *, COUNT(*) FROM clicks GROUP BY url EMIT CHANGES;

SELECT url FROM clicks GROUP BY url EMIT CHANGES;

SELECT url, COUNT(*) AS n FROM clicks HAVING n > 3 EMIT CHANGES;

SELECT url, COUNT(*) AS n FROM clicks GROUP BY url HAVING amount > 3 EMIT CHANGES;

CREATE STREAM counts2 AS SELECT url, COUNT(*) AS n FROM clicks GROUP BY url EMIT CHANGES;

CREATE TABLE urls AS SELECT url FROM clicks;

CREATE TABLE counts2 AS SELECT url, COUNT(*) FROM clicks GROUP BY url EMIT CHANGES LIMIT 10;

CREATE STREAM c2 AS SELECT * FROM clicks ORDER BY amount;

SELECT url, COUNT(*) FROM clicks WINDOW TUMBLING (1 MINUTE) GROUP BY url EMIT CHANGES;

SELECT url, COUNT(*) FROM clicks WINDOW TUMBLING (SIZE 1 MINUT) GROUP BY url EMIT CHANGES;

SELECT url, COUNT(*) FROM clicks WINDOW TUMBLING (SIZE '1' MINUTE) GROUP BY url EMIT CHANGES;

SELECT url, COUNT(*) FROM clicks GROUP BY url WINDOW TUMBLING (SIZE 1 MINUTE) EMIT CHANGES;

SELECT * FROM clicks WINDOW TUMBLING (SIZE 1 MINUTE) EMIT CHANGES;

SELECT url, COUNT(*) FROM clicks GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), url EMIT CHANGES;

SELECT url, COUNT(*) FROM clicks GROUP BY url EMIT FINAL;

SELECT url, COUNT(*) FROM clicks WINDOW HOPPING (SIZE 1 MINUTE) GROUP BY url EMIT CHANGES;

SELECT * FROM clicks c JOIN orders o ON c.user_id = o.user_id EMIT CHANGES;

SELECT * FROM clicks c JOIN users u ON c.user_id = u.name EMIT CHANGES;

SELECT * FROM clicks c JOIN users u ON c.amount = u.id EMIT CHANGES;

SELECT * FROM clicks, users WHERE clicks.user_id = users.id EMIT CHANGES;

SELECT * FROM users u JOIN clicks c ON c.user_id = u.id EMIT CHANGES;

SELECT user_id FROM clicks c JOIN orders o WITHIN 1 HOUR ON c.user_id = o.user_id EMIT CHANGES;

CREATE STREAM s (id INT PRIMARY KEY, v STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1);

CREATE TABLE t (id INT, v STRING) WITH (kafka_topic='t', value_format='JSON', partitions=1);

CREATE TABLE t (id INT, v STRING, PRIMARY KEY (id)) WITH (kafka_topic='t', value_format='JSON', partitions=1);

CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY) WITH (kafka_topic='t', value_format='JSON', partitions=1);

CREATE TABLE t (id SERIAL PRIMARY KEY, v TEXT NOT NULL) WITH (kafka_topic='t', value_format='JSON', partitions=1);

CREATE TABLE t (id INT PRIMARY KEY, v STRING DEFAULT 'x') WITH (kafka_topic='t', value_format='JSON', partitions=1);

CREATE STREAM s (id INT, v TEXT, b BOOL, at TIMESTAMP) WITH (kafka_topic='s', value_format='JSON', partitions=1);

CREATE STREAM s (id INT, b BOOL, x FLOAT) WITH (kafka_topic='s', value_format='JSON', partitions=1);

CREATE STREAM s (id INT, price DECIMAL) WITH (kafka_topic='s', value_format='JSON', partitions=1);

CREATE STREAM s (id INT, group STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1);

CREATE STREAM s (id INT, v STRING);

CREATE STREAM s (id INT, v STRING) WITH (kafka_topic='s', value_format='JSON');

CREATE STREAM s (id INT, v STRING) WITH (topic='s', value_format='JSON', partitions=1);

CREATE STREAM s (id INT, v STRING) WITH (kafka_topic='s', format='JASON', partitions=1);

CREATE STREAM s (id INT, v STRING) WITH (kafka_topic=s, value_format='JSON', partitions=1);

CREATE STREAM s (id INT, v STRING) WITH ('connector' = 'kafka', 'topic' = 's', 'format' = 'json');

CREATE STREAM s (id INT, v STRING) WITH (kafka_topic='s', value_format='JSON', partitions='many');

CREATE STREAM s (id INT v STRING) WITH (kafka_topic='s', value_format='JSON', partitions=1);

CREATE STREAM clicks (id INT) WITH (kafka_topic='clicks', value_format='JSON');

CREATE TABLE clicks (id INT PRIMARY KEY) WITH (kafka_topic='clicks', value_format='JSON');

CREATE STREAM s WITH (kafka_topic='s') SELECT * FROM clicks;

CREATE VIEW v AS SELECT * FROM clicks;

CREATE MATERIALIZED VIEW v AS SELECT url, COUNT(*) FROM clicks GROUP BY url;

INSERT INTO clicks VALUES ('u1', '/home');

INSERT INTO clicks (user_id, url) VALUES ('u1');

INSERT INTO clicks (user_id, amount) VALUES ('u1', 'many');

INSERT INTO clicks (user, amount) VALUES ('u1', 1);

INSERT INTO clicks (user_id, url) VALUES ("u1", "/home");

INSERT INTO click VALUES ('u1', '/home', 1, 0);

INSERT clicks VALUES ('u1', '/home', 1, 0);

UPDATE users SET name = 'Ada' WHERE id = 'u1';

TRUNCATE TABLE users;

ALTER STREAM clicks DROP COLUMN url;

ALTER TABLE users RENAME COLUMN name TO full_name;

DROP STREAM clicks;

DROP TABLE clicks;

DROP STREAM click;

DROP TOPIC clicks;

DESCRIBE click;

DESC clicks;

SHOW TABLE;

SHOW DATABASES;

USE production;

SET auto.offset.reset = 'earliest';

SET 'auto.offset.rest' = 'earliest';

SET 'auto.offset.reset' = 'first';

TERMINATE csas_big;

EXPLAIN clicks;

PRINT click FROM BEGINNING;

BEGIN;

SELECT 1;

SELECT TOP 10 * FROM clicks;

SELECT url AS from FROM clicks EMIT CHANGES;

SELECT * FROM clicks EMIT CHANGE;

SELECT * FROM clicks WHERE ts BETWEEN '2024-01-01' EMIT CHANGES;

COPY clicks FROM 'clicks.csv';

CREATE TABLE urls AS SELECT url, COUNT(*) AS n FROM clicks GROUP BY 1;

CREATE STREAM people (id INT KEY, first name STRING) WITH (kafka_topic='p', value_format='JSON', partitions=1);
