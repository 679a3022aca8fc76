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
CREATE STREAM arrow AS SELECT id, TRANSFORM(tags, x -> x + '!') FROM clicks;
CREATE STREAM unfolded AS SELECT id FROM clicks WHERE EXPLODE(tags) = 'a';
CREATE STREAM sites (id INT KEY, town STRING, limits MAP<STRING, INT>, zip BIGINT)
  WITH (kafka_topic='sites', value_format='JSON', partitions=4);
CREATE STREAM of_map AS SELECT id, limits->high FROM sites;
INSERT INTO sites SELECT id, url FROM clicks;
INSERT INTO sites SELECT id, place->town AS town, CAST(NULL AS MAP<STRING, INT>) AS limits FROM clicks;
INSERT INTO sites SELECT id, town, limits, zip, 1 AS more FROM sites;
INSERT INTO sites SELECT id, limits, town, zip FROM sites;
INSERT INTO sites SELECT id, town, limits, CAST(zip AS STRING) AS zip FROM sites;
INSERT INTO sites SELECT id, town, limits, CAST(zip AS INT) AS zip FROM sites;
INSERT INTO sites SELECT town, AS_VALUE(id) AS id, limits, zip FROM sites PARTITION BY town;
