"""The coordinators of groups and transactions, a shard for each partition of their topics."""
