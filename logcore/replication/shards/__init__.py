"""The coordinators of groups and transactions: one shard for each partition of their topics."""
