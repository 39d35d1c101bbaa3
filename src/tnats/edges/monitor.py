"""The monitoring doors: which path gives which report, as JSON the way nats-server's monitoring does.

A report is a function from `Query` to plain data (dicts in the order of nats-server's fields). Reports are handed
in by composition, so that this module needs to know no other part. `BadQuery` becomes 400.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tnats.edges.http_server import Request, Response
from tnats.edges.query import BadQuery, Query
from tnats.wire.documents import encode_document

Report = Callable[[Query], "Response | dict[str, object]"]

_JSON_HEADERS = (("Access-Control-Allow-Origin", "*"), ("Content-Type", "application/json"))
_NOT_FOUND = Response(
    404,
    b"404 page not found\n",
    (("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")),
)


class Monitor:
    """Routes requests to reports and counts them (`http_req_stats`)."""

    def __init__(self, base_path: str, product: str) -> None:
        """`base_path` is put before every path ("" or "/x"); `product` names the server on the index page."""
        self._base = "/" + base_path.strip("/") if base_path.strip("/") else ""
        self._product = product
        self._reports: dict[str, tuple[Report, str]] = {}
        self.request_counts: dict[str, int] = {}

    def add(self, path: str, report: Report, title: str) -> None:
        """Serve `report` at `path`, listed on the index page under `title` (not listed when empty)."""
        self._reports[path] = (report, title)

    def handle(self, request: Request) -> Response:
        """Answer one request; never raises for anything a client sends."""
        target, _, query = request.target.partition("?")
        if not target.startswith(self._base or "/"):
            return _NOT_FOUND
        path = target[len(self._base) :] or "/"
        if path == "/":
            self._count("/")
            return Response(200, self._index(), (("Content-Type", "text/html; charset=utf-8"),))
        if path not in self._reports:
            return _NOT_FOUND
        self._count(path)
        try:
            answer = self._reports[path][0](Query(query))
        except BadQuery as error:
            return Response(400, str(error).encode())
        return answer if isinstance(answer, Response) else json_response(answer)

    def _count(self, path: str) -> None:
        self.request_counts[path] = self.request_counts.get(path, 0) + 1

    def _index(self) -> bytes:
        links = "".join(
            f'<li><a href=".{path}">{title}</a> <code>{path}</code></li>'
            for path, (_, title) in self._reports.items()
            if title
        )
        return _INDEX.replace("{product}", self._product).replace("{links}", links).encode()


def json_response(data: Mapping[str, object], status: int = 200, *, compact: bool = False) -> Response:
    """Encode `data` indented by two spaces, or on one line when `compact` (the health probe)."""
    return Response(status, encode_document(data, is_indented=not compact), _JSON_HEADERS)


_INDEX = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{product}</title>
<meta name="viewport" content="width=device-width">
<style>
:root { color-scheme: light dark; font: 16px/1.6 system-ui, sans-serif }
body { max-width: 34rem; margin: 3rem auto; padding: 0 1rem }
li { margin: .2rem 0 } a { font-weight: 600; text-decoration: none } code { opacity: .6 }
</style></head><body><h1>{product}</h1><ul>{links}</ul></body></html>
"""
