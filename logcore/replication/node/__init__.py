"""Runs the state machines of a node: carries out their effects on sockets and files."""
