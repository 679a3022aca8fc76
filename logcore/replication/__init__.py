"""Replication: pure state machines (no clock, socket, file, thread or randomness), and the shells around them."""
