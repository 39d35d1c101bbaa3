"""The official JavaScript clients, unmodified, against `tnats serve`.

They are taken from `TNATS_NODE_MODULES`: `npm install @nats-io/transport-node @nats-io/jetstream @nats-io/kv
@nats-io/obj` in some folder, and the path of its `node_modules`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.live.server_process import serve

MODULES = os.environ.get("TNATS_NODE_MODULES", "")
SCENES = Path(__file__).with_name("javascript")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not MODULES or shutil.which("node") is None, reason="needs node, and TNATS_NODE_MODULES with the NATS clients"
    ),
]


@pytest.mark.parametrize("scene", sorted(path.stem for path in SCENES.glob("*.mjs")))
def test_scene(scene: str, tmp_path: Path) -> None:
    """What a newcomer would try works; the scripts hold what is right."""
    shutil.copy(SCENES / f"{scene}.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(Path(MODULES).absolute())
    with serve(tmp_path, "jetstream { store_dir: store }") as server:
        command = ["node", f"{scene}.mjs", str(server.port)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
