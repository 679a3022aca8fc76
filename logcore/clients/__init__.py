"""Producer, consumer and administrator, for a log in this process or over the network."""
