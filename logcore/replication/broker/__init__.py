"""A node's part in the cluster: its registration, its lease, and the replicas that it runs."""
