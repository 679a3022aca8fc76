"""The server on a node of a cluster: where the engine runs, and how requests reach it."""
