"""The pytest plug-in: the fixture `tnats_server`, and its log in the report of a test that failed.

Every pytest run of an environment with tnats loads this module, so it imports no server.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tnats.testing.embedded import EmbeddedServer

MARKER = "tnats_server"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", f"{MARKER}(config='', **options): how the fixture {MARKER} configures its server"
    )


@pytest.fixture
def tnats_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """A running `tnats.testing.EmbeddedServer` of the test's own: a free port, a private folder.

    `@pytest.mark.tnats_server(...)` passes its arguments to `tnats.testing.serve`.
    """
    from tnats.testing import serve

    marker = request.node.get_closest_marker(MARKER)
    with serve(*marker.args, **marker.kwargs) if marker else serve() as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the server's log to the report of a failed test."""
    report = yield
    server = getattr(item, "funcargs", {}).get("tnats_server")
    if report.failed and server is not None:
        report.sections.append(("log of the tnats server", server.logs))
    return report
