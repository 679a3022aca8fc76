"""Sinks: SQL databases, data lakes, ClickHouse, Elasticsearch and OpenSearch, HTTP, MQTT."""
