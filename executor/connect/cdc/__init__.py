"""The parts that all sources of change data capture share, independent of the database."""
