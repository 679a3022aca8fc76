"""Authentication of clients, their rights, and their quotas."""
