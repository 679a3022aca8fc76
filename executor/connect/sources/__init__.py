"""Sources that need no other server: generated records, and files."""
