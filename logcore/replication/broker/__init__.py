"""A node as a broker: its registration, its lease, and the replicas that it runs."""
