"""Record batches: Kafka's format, columnar batches, compression, and their checksums."""
