"""The client and the command line against our own server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.live.client_scenes import *  # noqa: F403 - the tests themselves
from tests.live.client_scenes import GUARDED

import tnats.testing
from tnats.testing import EmbeddedServer


@pytest.fixture(scope="module")
def plain() -> Iterator[EmbeddedServer]:
    with tnats.testing.serve() as server:
        yield server


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedServer]:
    with tnats.testing.serve(GUARDED) as server:
        yield server
