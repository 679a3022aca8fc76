"""Queries of clients: pull queries, which are answered once, and push queries, which go on."""
