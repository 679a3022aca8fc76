"""The coordinators of groups and transactions: one shard per partition of their topics."""
