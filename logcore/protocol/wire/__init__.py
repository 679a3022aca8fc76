"""Bytes of the Kafka protocol: frames, primitives, and the messages of which they are made."""
