"""A node of a cluster as a part of a process: the machines of `replication/` on files and sockets, and Kafka's door."""
