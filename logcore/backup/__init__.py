"""Backups of a log: consistent snapshots of running nodes, the store that keeps them, and their restoration."""
