"""Replication: pure state machines (no clock, socket, file, thread, randomness), and the code that runs their effects."""
