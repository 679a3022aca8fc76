"""Carries out what the machines decide, on sockets and files."""
