"""Carries out the decisions of the state machines, on sockets and files."""
