"""Connectors over HTTP: the routes of Kafka Connect's REST API, a client of it, and the deliveries of web hooks."""
