"""Schemas of the registry: Avro, JSON and Protobuf as SQL columns and back, and how they may change."""
