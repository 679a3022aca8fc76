"""Replication: pure state machines (no clock, socket, file, thread, randomness), and the shells that run their effects."""
