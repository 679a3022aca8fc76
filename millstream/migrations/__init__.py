"""`millstream migrate`: files of statements that are applied in order, each once."""
