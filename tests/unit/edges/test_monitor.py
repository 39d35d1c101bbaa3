"""Which path gives which report."""

from __future__ import annotations

import pytest

from tnats.edges.http_server import Request
from tnats.edges.monitor import Monitor
from tnats.edges.query import Query


def monitor(base_path: str = "") -> Monitor:
    built = Monitor(base_path, "tnats under test")
    built.add("/varz", lambda query: {"limit": query.integer("limit"), "b": {"c": True}}, "General")
    return built


def test_report_is_indented_json_for_any_origin() -> None:
    """A report is JSON indented by two spaces, readable by pages of any origin."""
    answer = monitor().handle(Request("GET", "/varz?limit=3"))
    assert answer.body == b'{\n  "limit": 3,\n  "b": {\n    "c": true\n  }\n}'
    assert dict(answer.headers) == {"Access-Control-Allow-Origin": "*", "Content-Type": "application/json"}


def test_bad_option_is_400() -> None:
    """A query that does not decode is answered 400 with the reason as its body."""
    answer = monitor().handle(Request("GET", "/varz?limit=x"))
    assert (answer.status, answer.body[:32]) == (400, b"Error decoding int for 'limit': ")


@pytest.mark.parametrize("target", ["/nope", "/VARZ", "/varz/", "*", "", "//varz"])
def test_unknown_path_is_404(target: str) -> None:
    """Paths are matched exactly, case included; everything else is 404."""
    assert monitor().handle(Request("GET", target)).status == 404


def test_base_path_stands_before_every_path() -> None:
    """With a base path, only paths below it are served."""
    built = monitor("/nats/")
    assert built.handle(Request("GET", "/nats/varz")).status == 200
    assert built.handle(Request("GET", "/varz")).status == 404


def test_requests_are_counted_by_path() -> None:
    """Every served path counts its requests, the index as "/"; unknown paths do not."""
    built = monitor()
    for target in ("/", "/varz", "/varz?limit=1", "/nope"):
        built.handle(Request("GET", target))
    assert built.request_counts == {"/": 1, "/varz": 2}


def test_index_links_every_report() -> None:
    """The index page names the product and links each listed report relative to itself."""
    page = monitor("/x").handle(Request("GET", "/x/")).body.decode()
    assert "tnats under test" in page
    assert 'href="./varz"' in page


def test_query_keeps_the_first_of_a_repeated_option() -> None:
    """A repeated option has its first value."""
    assert Query("a=1&a=2").text("a") == "1"
