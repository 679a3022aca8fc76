"""Answers the requests of the Kafka protocol; one module for each family of requests."""
