"""The Kafka protocol: a server for other processes, and the log as a client over the network."""
