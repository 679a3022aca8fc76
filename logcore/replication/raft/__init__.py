"""The metadata quorum: Raft without I/O."""
