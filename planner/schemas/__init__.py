"""Schemas of the registry: from Avro, JSON and Protobuf to SQL columns and back, and how schemas may change."""
