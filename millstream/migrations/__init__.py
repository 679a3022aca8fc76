"""`millstream migrate`: files of statements that are applied once each, in order."""
