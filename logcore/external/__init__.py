"""The log that somebody else runs (Apache Kafka, another Millstream): how to connect, and what is ours there."""
