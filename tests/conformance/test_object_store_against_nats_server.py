"""Object stores against the real nats-server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conformance.nats_server import RealServer, real_server
from tests.live.object_store_scenes import *  # noqa: F403 - the tests themselves


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    folder = tmp_path_factory.mktemp("nats")
    with real_server(folder, f'jetstream {{ store_dir: "{folder}" }}') as server:
        yield server
