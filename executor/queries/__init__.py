"""The lifecycle of a persistent query: batch by batch, each exactly once, with recovery after a crash."""
