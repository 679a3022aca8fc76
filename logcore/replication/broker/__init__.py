"""What a node has of the cluster: its registration, its lease, the replicas that it runs."""
