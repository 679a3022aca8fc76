"""Replication: state machines that decide, without clock, socket, file, thread or chance, and what carries them out."""
