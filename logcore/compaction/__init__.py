"""Compaction: keeps only the last record of each key, at its offset."""
