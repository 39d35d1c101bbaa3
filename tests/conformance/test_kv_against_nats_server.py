"""Key-value buckets against the real nats-server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.nats_server import RealServer, real_server
from tests.live.kv_scenes import *  # noqa: F403 - the tests themselves


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    folder = tmp_path_factory.mktemp("nats")
    with real_server(folder, f'jetstream {{ store_dir: "{folder}" }}') as server:
        yield server


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RealServer]:
    with real_server(tmp_path, f'jetstream {{ store_dir: "{tmp_path}", domain: hub }}') as server:
        yield server
