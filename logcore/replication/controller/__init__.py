"""Who leads the quorum decides: brokers, topics, partitions, and the records that say so."""
