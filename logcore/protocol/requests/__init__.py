"""Answers to requests of the Kafka protocol, a module for each family."""
