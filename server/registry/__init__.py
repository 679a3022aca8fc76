"""The schema registry over HTTP, for the serializers of Kafka clients."""
