"""Compaction: the last record of each key stays, and every record its offset."""
