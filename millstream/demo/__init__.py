"""`make demo`: the departures of a year as a stream, and a server that is killed in the middle of it."""
