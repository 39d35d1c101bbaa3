"""The commands for JetStream against our own server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.live.jetstream_cli_scenes import *  # noqa: F403 - the tests themselves

import tnats.testing
from tnats.testing import EmbeddedServer


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    folder = tmp_path_factory.mktemp("store")
    with tnats.testing.serve(f'jetstream {{ store_dir: "{folder}" }}') as server:
        yield server
