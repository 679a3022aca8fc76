"""Replication: pure state machines (no clock, socket, file, thread, randomness), and what carries out their effects."""
