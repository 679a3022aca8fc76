"""Statements in, entities and rows out. Nothing here knows HTTP or which node it runs on."""
