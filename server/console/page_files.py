"""Serves the files of the console's page: read once, under fixed names, with headers that keep the page from loading
anything from other hosts, and from running other code than these files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ..http.errors import NOT_FOUND, RequestRefused
from ..http.statements import error_response

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_HEADERS: Final = {
    # Trusted Types: an assignment to `innerHTML` throws, so no record can become markup, even through a bug of ours.
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Browsers revalidate each time, which the ETag makes cheap: after an upgrade, old and new modules are never mixed.
    "cache-control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """`etag`: of the bytes, including the quotes."""

    body: bytes
    media_type: str
    etag: str


def page_files() -> Mapping[str, PageFile]:
    """The files by path below /console/; the empty path is the page itself."""
    found = {name: _page_file(name, file.read_bytes()) for name, file in _walk(files("millstream.server.console"))}
    return {**found, "": found["index.html"]}


def console_routes() -> list[Route]:
    """The routes. /console redirects to /console/, the base of the page's relative names."""
    served = page_files()

    async def page(request: Request) -> Response:
        file = served.get(request.path_params["file"])
        if file is None:
            return error_response(RequestRefused(NOT_FOUND, f"{request.url.path} does not exist"))
        headers = {**_HEADERS, "etag": file.etag}
        if file.etag in _etags(request):
            return Response(status_code=304, headers=headers)
        return Response(file.body, media_type=file.media_type, headers=headers)

    async def to_page(request: Request) -> Response:
        del request
        # Relative, because a proxy may serve the console under another path.
        return RedirectResponse("console/", 308)

    return [Route("/console", to_page), Route("/console/{file:path}", page)]


def wants_page(request: Request) -> bool:
    """Whether the request is from a person's browser, which accepts HTML first."""
    return request.headers.get("accept", "").partition(",")[0].strip().lower().startswith("text/html")


def _etags(request: Request) -> list[str]:
    given = request.headers.get("if-none-match", "").split(",")
    return [etag.strip().removeprefix("W/") for etag in given]


def _walk(package: Traversable) -> Iterator[tuple[str, Traversable]]:
    for file in package.joinpath("page").iterdir():
        if file.is_dir():
            yield from ((f"{file.name}/{inner.name}", inner) for inner in file.iterdir())
        else:
            yield file.name, file


def _page_file(name: str, body: bytes) -> PageFile:
    return PageFile(body, _TYPES[name.rpartition(".")[2]], f'"{hashlib.sha256(body).hexdigest()[:20]}"')
