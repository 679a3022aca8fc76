"""A node that fails in the middle of an answer that another node passes on: the client sees that it is cut."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from millstream.server.cluster.forwarding import Incoming, forward
from millstream.server.config.configuration import ListenAddress
from millstream.server.http.row_formats import KSQL_TYPE

HEAD = b'[{"header":{"queryId":"q","schema":"`V` INTEGER"}}'
PUSH = HEAD + b',\n{"row":{"columns":[1]}},\n{"row":{"columns":[2]}},\n'
PULL = HEAD + b',\n{"row":{"columns":[1]}},\n{"row":{"columns":[2]}}'
BETWEEN = (b"}}", b"}},", b"}},\n")


async def cut(*chunks: bytes) -> bytes:
    """The body that a client gets if the node sends these chunks of its answer and then is gone."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {KSQL_TYPE}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        for chunk in chunks:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await writer.drain()
        writer.close()

    sent: list[Any] = []
    asked = [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive() -> Any:
        return asked.pop() if asked else await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "POST", "raw_path": b"/query", "query_string": b"", "headers": headers}
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as node:
        port = node.sockets[0].getsockname()[1]
        await forward(scope, Incoming(receive), send, ListenAddress("127.0.0.1", port), None, [], lambda: True)
    return b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize("answer", [PUSH, PULL], ids=["push", "pull"])
def test_wherever_an_answer_of_query_is_cut_its_last_line_is_the_error(answer: bytes) -> None:
    for end in range(len(answer) - 30, len(answer) + 1):
        body = asyncio.run(cut(answer[:end]))
        assert body.startswith(answer[:end])
        last = json.loads(body.splitlines()[-1].removesuffix(b"]"))
        assert "failed during the request" in last["errorMessage"]["message"]
        if answer[:end].endswith(BETWEEN):
            assert json.loads(body)[-1] == last, answer[:end]
        else:
            with pytest.raises(ValueError, match=r"."):
                json.loads(body)


@pytest.mark.parametrize("chunks", [(PUSH[:-1], PUSH[-1:]), (PUSH[:-2], PUSH[-2:-1], PUSH[-1:])])
def test_where_the_chunks_end_does_not_matter(chunks: tuple[bytes, ...]) -> None:
    *rows, last = json.loads(asyncio.run(cut(*chunks)))
    assert [row["row"]["columns"] for row in rows[1:]] == [[1], [2]]
    assert "errorMessage" in last
