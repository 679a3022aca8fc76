CREATE STREAM a (id INT KEY, v STRING) WITH (kafka_topic='a', value_format='JSON');
CREATE STREAM a (id INT KEY, v STRING) WITH (kafka_topic='a', value_format='JSN', partitions=1);
CREATE STREAM a (id INT KEY, v STRING) WITH (kafka_topc='a', value_format='JSON', partitions=1);
CREATE STREAM a (id INT KEY, v STRING) WITH (kafka_topic='a', partitions=1);
CREATE STREAM a (id INT PRIMARY KEY, v STRING) WITH (kafka_topic='a', value_format='JSON', partitions=1);
CREATE TABLE a (id INT, v STRING) WITH (kafka_topic='a', value_format='JSON', partitions=1);
CREATE STREAM a (id ARRAY<INT> KEY, v STRING) WITH (kafka_topic='a', value_format='JSON', partitions=1);
CREATE STREAM a (id INT KEY, v ARRAY<INT>) WITH (kafka_topic='a', value_format='DELIMITED', partitions=1);
CREATE STREAM a (id INT KEY, v STRING) WITH (kafka_topic='a', value_format='JSON', partitions=1, timestamp='v');
CREATE STREAM a (id INT KEY, v STRING) WITH (kafka_topic='a', value_format='JSON', partitions=1, window_type='TUMBLING');
CREATE STREAM a (id INT KEY, id STRING) WITH (kafka_topic='a', value_format='JSON', partitions=1);
CREATE STREAM a (id INT KEY, rowtime STRING) WITH (kafka_topic='a', value_format='JSON', partitions=1);
CREATE STREAM a (id INT KEY, v MISSING) WITH (kafka_topic='a', value_format='JSON', partitions=1);

CREATE STREAM a (id INT KEY, v STRING) WITH (kafka_topic='a', value_format='JSON', wrap_single_value='maybe', partitions=1);

CREATE STREAM quoted (a STRING) WITH (KAFKA_TOPIC='q', VALUE_FORMAT='DELIMITED', VALUE_DELIMITER='"', PARTITIONS=1);
