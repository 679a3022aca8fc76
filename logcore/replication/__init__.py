"""Replication: state machines that decide (no clock, socket, file, thread or `random` inside), and what carries them out."""
