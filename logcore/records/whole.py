"""Splits bytes into whole Kafka record batches, as a client encoded them."""

from __future__ import annotations

from ..errors import InvalidRecords
from .batch import HEADER_SIZE, EncodedBatch, checksum_of, read_header


def checked_batches(data: memoryview) -> list[EncodedBatch]:
    """The batches. Raises `InvalidRecords` for bytes that are not whole batches of records."""
    batches: list[EncodedBatch] = []
    position = 0
    while position < len(data):
        if position + HEADER_SIZE > len(data):
            raise InvalidRecords("the last record batch is cut off")
        header = read_header(data, position)
        if not header.plausible or position + header.size > len(data):
            raise InvalidRecords(f"no record batch of version 2 begins at byte {position}")
        batch = bytearray(data[position : position + header.size])
        if header.control or checksum_of(memoryview(batch)) != header.crc:
            raise InvalidRecords(f"the record batch at byte {position} is damaged, or is a control batch")
        batches.append(EncodedBatch([batch], header))
        position += header.size
    return batches
