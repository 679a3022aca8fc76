"""The catalog of this server: commands, their topic, and their effects."""
