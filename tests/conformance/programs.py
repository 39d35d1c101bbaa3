"""The programs that are not ours: where they are, and what a test says that is skipped without one."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

NATS_SERVER = (
    shutil.which("nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}") or ""
)
"""nats-server, beside the interpreter or in the path; empty where it is not installed."""

NATS_CLI = os.environ.get("TNATS_NATS_CLI") or shutil.which("nats") or ""
"""The NATS command line; empty where it is not installed."""

needs_nats_server = pytest.mark.skipif(not NATS_SERVER, reason="needs nats-server: pip install 'tnats[conformance]'")
needs_nats_cli = pytest.mark.skipif(
    not NATS_CLI, reason="needs the NATS command line: TNATS_NATS_CLI, or `nats` in the path"
)
