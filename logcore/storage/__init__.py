"""The files of a partition: segments and their indexes, what their bytes mean, recovery, retention, damage."""
