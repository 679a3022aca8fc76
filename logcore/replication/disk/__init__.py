"""Keeps the logs of replicas in files."""
