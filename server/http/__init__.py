"""The HTTP API of ksqlDB and the schema registry: routes, requests, responses, connections."""
