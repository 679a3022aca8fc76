"""Queries of clients: pull queries, which are answered once, and push queries, which keep sending changes."""
