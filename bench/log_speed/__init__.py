"""The log beside Apache Kafka, and its codec beside aiokafka's: `python -m bench --only kafka`."""
