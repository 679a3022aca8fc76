"""A log that others operate (Apache Kafka, another Millstream): how to connect, and which names on it are ours."""
