"""The routes of connectors: Kafka Connect's REST API, and the deliveries of web hooks."""
