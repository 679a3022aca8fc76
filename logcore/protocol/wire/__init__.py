"""The bytes of the Kafka protocol: frames, messages, and the primitives that messages consist of."""
