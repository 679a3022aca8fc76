"""The logs of replicas in files."""
