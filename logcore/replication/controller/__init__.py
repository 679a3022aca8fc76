"""The controller (the leader of the quorum) decides about brokers, topics and partitions, in metadata records."""
