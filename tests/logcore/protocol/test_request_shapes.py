"""What `request_shapes.py` says of requests is so in each version of them that the server takes."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any, cast

import pytest

from millstream.logcore.protocol.dispatch import HANDLERS, WAITING_HANDLERS
from millstream.logcore.protocol.requests import request_shapes, share_request_shapes
from millstream.logcore.protocol.requests.request_shapes import Since, Until
from millstream.logcore.protocol.requests.sasl_requests import sasl_authenticate
from millstream.logcore.protocol.requests.share_record_requests import share_acknowledge, share_fetch
from millstream.logcore.protocol.wire.apis import KNOWN, Api
from millstream.logcore.protocol.wire.messages import request_class

ALL: dict[Api, Callable[..., object]] = {
    **HANDLERS,
    **WAITING_HANDLERS,
    Api.SASL_AUTHENTICATE: sasl_authenticate,
    Api.SHARE_ACKNOWLEDGE: share_acknowledge,
    Api.SHARE_FETCH: share_fetch,
}
CASES = [(api, version) for api in ALL for version in range(KNOWN[api].oldest, KNOWN[api].newest + 1)]


def shape_of(api: Api) -> type[Any]:
    named = inspect.signature(ALL[api]).parameters["request"].annotation
    return getattr(request_shapes, named, None) or getattr(share_request_shapes, named)


def missing(shape: type[Any], entity: type[Any], version: int) -> Iterator[str]:
    """The fields of the shape that this class of kio's lacks, or has as something else."""
    fields = {field.name: field for field in dataclasses.fields(entity)}
    for name, kind in typing.get_type_hints(shape, include_extras=True).items():
        if name == "__version__":
            continue
        bounds = kind.__metadata__ if typing.get_origin(kind) is Annotated else ()
        if any(not holds(bound, version) for bound in bounds):
            continue
        where = f"{shape.__name__}.{name}"
        if name not in fields:
            yield where
            continue
        inner, of_kio = parts(kind), parts(fields[name].type)
        if (type(None) in of_kio) and type(None) not in inner and fields[name].metadata.get("kafka_type") != "uuid":
            yield f"{where} may be None"
        for part in filter(is_shape, inner):
            [entry] = filter(dataclasses.is_dataclass, of_kio)
            yield from missing(part, cast("type[Any]", entry), version)


def holds(bound: object, version: int) -> bool:
    match bound:
        case Since(first):
            return version >= first
        case Until(last):
            return version <= last
        case _:
            raise AssertionError(f"{bound!r} bounds no versions")


def is_shape(part: Any) -> bool:
    return isinstance(part, type) and part.__module__ == request_shapes.__name__


def parts(kind: Any) -> list[Any]:
    arguments = typing.get_args(kind)
    return [part for argument in arguments for part in parts(argument)] if arguments else [kind]


@pytest.mark.parametrize(("api", "version"), CASES, ids=lambda part: part.name if isinstance(part, Api) else str(part))
def test_each_version_has_the_fields_that_its_handler_reads(api: Api, version: int) -> None:
    assert list(missing(shape_of(api), request_class(api, version), version)) == []


def test_a_field_that_a_version_lacks_is_found() -> None:
    lacking = request_class(Api.DELETE_TOPICS, KNOWN[Api.DELETE_TOPICS].newest)
    assert list(missing(request_shapes.MetadataRequest, lacking, 0)) == []
    assert list(missing(request_shapes.CreateTopicsRequest, lacking, 0)) != []
