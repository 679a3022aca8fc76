"""Confluent's REST proxy, v2 and v3, on the HTTP listener: records and consumers over HTTP, topics and groups."""
