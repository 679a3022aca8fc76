"""A log that others operate (Apache Kafka, another Millstream): how to connect to it, and our names on it."""
