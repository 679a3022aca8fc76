"""Backups of a log: consistent snapshots of nodes that go on working, the store that keeps them, and the way back."""
