"""The records in which coordinators keep groups, offsets and transactions, as bytes and back."""
