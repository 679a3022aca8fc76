"""Replication: state machines that decide, without clock, socket, file, thread or `random`, and what carries them out."""
