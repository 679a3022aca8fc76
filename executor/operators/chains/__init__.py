"""Chains of stateless steps: their SQL, and the rows for which it fails."""
