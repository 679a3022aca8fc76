"""The decisions about groups and transactions, as pure state machines: no thread, clock, file or socket."""
