"""One replica of a partition, in the roles of leader and follower."""
