"""Encodes and decodes the records in which coordinators store groups, offsets and transactions."""
