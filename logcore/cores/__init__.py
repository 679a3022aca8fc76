"""What groups and transactions decide, as pure state machines: no thread, clock, file or socket."""
