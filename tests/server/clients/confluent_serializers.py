"""A session of Confluent's serializers for Python: records of AVRO, JSON_SR and PROTOBUF, and what a server wrote.

Arguments: the registry, the Kafka address, `write` or `read`. One JSON line each.
"""

from __future__ import annotations

import datetime
import json
import sys
from decimal import Decimal

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

AVRO = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NONE", "SOME"]}},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "names", "type": {"type": "array", "items": "string"}},
    ],
}  # fmt: skip
JSON = {"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}


def messages() -> tuple[type, type]:
    """An order, which holds a price of another file."""
    price = descriptor_pb2.FileDescriptorProto(name="price.proto", package="shop", syntax="proto3")
    price.message_type.add(name="Price").field.add(name="units", number=1, type=3, label=1)
    order = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order.dependency.append("price.proto")
    fields = order.message_type.add(name="Order").field
    fields.add(name="id", number=1, type=3, label=1)
    fields.add(name="prices", number=2, type=11, label=3, type_name=".shop.Price")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(price.SerializeToString())
    pool.AddSerializedFile(order.SerializeToString())
    found = [pool.FindMessageTypeByName(f"shop.{name}") for name in ("Order", "Price")]
    return message_factory.GetMessageClass(found[0]), message_factory.GetMessageClass(found[1])


def new_client(registry: str) -> SchemaRegistryClient:
    """It remembers nothing of what others have looked up."""
    return SchemaRegistryClient({"url": registry})


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def write(registry: str, kafka: str) -> None:
    client, producer = new_client(registry), Producer({"bootstrap.servers": kafka})
    order, price = messages()
    day = datetime.date(2024, 2, 29)
    row = {"id": 1, "kind": "SOME", "total": Decimal("12.34"), "day": day, "names": ["a"]}
    strict = {"auto.register.schemas": False}
    spelled = json.dumps(AVRO, indent=1, sort_keys=True)
    protobuf = {"use.deprecated.format": False}
    for topic, serializer, value in (
        ("orders_avro", AvroSerializer(client, json.dumps(AVRO)), row),
        ("orders_avro", AvroSerializer(new_client(registry), spelled, conf=strict), {**row, "id": 2}),
        ("orders_json", JSONSerializer(json.dumps(JSON), client), {"id": 1, "note": "x"}),
        ("orders_protobuf", ProtobufSerializer(order, client, protobuf), order(id=1, prices=[price(units=5)])),  # pyrefly: ignore[bad-argument-type]
        ("orders_protobuf", ProtobufSerializer(order, new_client(registry), protobuf | strict), order(id=2)),  # pyrefly: ignore[bad-argument-type]
    ):  # fmt: skip
        producer.produce(topic, serializer(value, context(topic)))  # pyrefly: ignore[bad-argument-type]
    producer.flush(20)
    refused = Schema(json.dumps({**AVRO, "fields": [{"name": "id", "type": "string"}]}), "AVRO")
    print(json.dumps(["compatible", client.test_compatibility("orders_avro-value", refused)]))


def read(registry: str, kafka: str) -> None:
    client = new_client(registry)
    order, _ = messages()
    protobuf = ProtobufDeserializer(order, {"use.deprecated.format": False}, client)  # pyrefly: ignore[bad-argument-type]
    for topic, deserializer in (
        ("COPY_AVRO", AvroDeserializer(client)),
        ("COPY_JSON", JSONDeserializer(None, schema_registry_client=client)),
        ("orders_protobuf", protobuf),
    ):
        print(json.dumps([topic, str(deserializer(first_value(kafka, topic), context(topic)))]))


def first_value(kafka: str, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    for _ in range(60):
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            consumer.close()
            return message.value()
    raise SystemExit(f"nothing in {topic}")


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[3]](sys.argv[1], sys.argv[2])
