"""`tnats.client.connect` for tests: a machine that stands still for seconds is no reason to give up."""

from __future__ import annotations

from functools import partial

from tests.live.server_process import PATIENCE_S

import tnats.client

connect = partial(tnats.client.connect, connect_timeout_s=PATIENCE_S)
