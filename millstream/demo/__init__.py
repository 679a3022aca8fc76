"""`millstream demo`: the departures of a year as a stream, and a server that is killed while it runs."""
