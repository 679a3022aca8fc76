"""Records that are decided as one give the image that they give one after the other."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from millstream.logcore.replication.controller.metadata_image import MetadataImage, fold
from millstream.logcore.replication.controller.metadata_records import (
    ConfigChanged,
    SingleRecord,
    Together,
    TopicCreated,
    TopicDeleted,
)


@pytest.mark.parametrize("seed", range(20))
def test_records_together_are_the_records_one_by_one(seed: int) -> None:
    chance = random.Random(seed)

    def one() -> SingleRecord:
        if chance.random() < 0.2:
            id = chance.choice("ab")
            return TopicCreated(id, f"t-{id}") if chance.random() < 0.5 else TopicDeleted(id)
        return ConfigChanged(chance.choice(("a", "b", "acls:")), chance.choice("xyz"), chance.choice((None, "1", "2")))

    records = tuple(one() for _ in range(30))
    single = MetadataImage()
    for record in records:
        single = fold(single, 1, record)
    assert fold(MetadataImage(), 1, Together(records)) == replace(single, index=1)
