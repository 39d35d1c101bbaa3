"""What a start imports: suites start servers by the thousand, and a restarted server is waited for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

NEVER = (
    "asyncio", "bcrypt", "click", "cramjam", "cryptography", "h11", "nacl", "psutil", "rich", "tzdata", "unittest",
    "zoneinfo", "zstandard", "tnats.client", "tnats.edges", "tnats.harness", "tnats.jetstream.backup", "tnats.raft",
    "tnats.runtime.sim", "tnats.storage.cipher", "tnats.testing",
)  # fmt: skip
"""What no start needs, unless the configuration asks for it or a first request comes: such imports stand where that is
found out."""


def _imported(*modules: str) -> list[str]:
    code = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return list(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("modules", "never"),
    [
        (("tnats.cli.serve",), (*NEVER, "tnats.jetstream", "tnats.storage")),
        (("tnats.cli.serve", "tnats.server.jetstream"), NEVER),
    ],
    ids=["plain", "jetstream"],
)
def test_start_imports_nothing_that_few_servers_need(modules: tuple[str, ...], never: tuple[str, ...]) -> None:
    """Neither what other commands are made of, nor what serves features that the configuration must ask for."""
    found = _imported(*modules)
    assert "tnats.broker.broker" in found
    assert [name for name in found if any(name == one or name.startswith(f"{one}.") for one in never)] == []
