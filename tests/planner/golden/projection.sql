CREATE STREAM clicks (id INT KEY, url STRING, size BIGINT, place STRUCT<town STRING, zip INT>, tags ARRAY<STRING>)
  WITH (kafka_topic='clicks', value_format='JSON', partitions=4);
CREATE STREAM big AS SELECT id, url, size * 2 AS twice, place->town FROM clicks WHERE size > 10 AND url LIKE 'a%';
CREATE STREAM everything AS SELECT * FROM clicks;
CREATE STREAM by_town AS SELECT * FROM clicks PARTITION BY place->town;
CREATE STREAM named AS SELECT size + 1, size + 2, tags[1], place->* FROM clicks PARTITION BY id;
CREATE STREAM no_key AS SELECT url FROM clicks;
CREATE STREAM twice_key AS SELECT id, id AS id2, url FROM clicks;
CREATE STREAM only_key AS SELECT id FROM clicks;
CREATE STREAM wrong_name AS SELECT id, ulr FROM clicks;
CREATE STREAM wrong_source AS SELECT * FROM click;
CREATE STREAM wrong_type AS SELECT id, url FROM clicks WHERE url > 3;
CREATE STREAM not_boolean AS SELECT id, url FROM clicks WHERE size + 1;
CREATE STREAM reserved AS SELECT id, ROWTIME FROM clicks;
CREATE STREAM alias AS SELECT id, url AS rowtime FROM clicks;
CREATE STREAM untyped AS SELECT id, NULL AS nothing FROM clicks;
CREATE TABLE wrong_kind AS SELECT id, url FROM clicks;
CREATE STREAM clicks (id INT KEY) WITH (kafka_topic='clicks', value_format='JSON');

CREATE STREAM compared_with_null AS SELECT id, url FROM clicks WHERE url = NULL;

CREATE STREAM added_to_null AS SELECT id, id + NULL AS sum FROM clicks;

CREATE STREAM cast_that_is_none AS SELECT id, CAST(url AS ARRAY<INT>) AS many FROM clicks;

CREATE STREAM keyed_by_an_alias AS SELECT id, url AS target FROM clicks PARTITION BY target;

CREATE STREAM unknown_source AS SELECT nope.url FROM clicks;

INSERT INTO nowhere SELECT * FROM clicks;

INSERT INTO clicks WITH (value_format='JSON') SELECT * FROM clicks;
