"""The files of a partition: segments, indexes, reading, recovery, retention, and the detection of damage."""
