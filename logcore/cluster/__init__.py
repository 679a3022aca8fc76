"""A node of a cluster in this process: it runs the state machines of `replication/` and serves Kafka's requests."""
