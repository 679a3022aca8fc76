"""The log: partitions, transactions, consumer groups, replication and the Kafka protocol. Knows no SQL."""
