"""Producer, consumer and administrator: for a log in this process and for one over the network alike."""
