"""The life of a persistent query: batch by batch, each exactly once, and back after a crash."""
