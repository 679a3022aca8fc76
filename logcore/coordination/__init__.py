"""Carries out what the cores decide, for a log of one node; and the records in which they are kept."""
