"""The configuration corpus, asked of the real server: what the unit tests have recorded is what nats-server does."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.conformance.programs import NATS_SERVER, needs_nats_server
from tests.live.server_process import PATIENCE_S

CORPUS = Path(__file__).parents[1] / "unit" / "server" / "config" / "corpus.jsonl"
CASES = [case for case in map(json.loads, CORPUS.read_text().splitlines()) if case["same"] != "differs"]


def ask(directory: Path, text: str) -> tuple[str, list[str]]:
    """(digest, complaints) of `nats-server -t`, columns of line 1 counted from 1 as everywhere else."""
    (directory / "d.conf").write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    done = subprocess.run(
        [NATS_SERVER, "-c", "d.conf", "-t"],
        cwd=directory,
        env={**os.environ, "PORT": "4333"},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
    )
    digest = re.search(r"\((sha256:[0-9a-f]+)\)", done.stderr)
    if digest is not None:
        return digest.group(1), []
    said = re.sub(r"d\.conf:1:(\d+)", lambda at: f"d.conf:1:{int(at.group(1)) + 1}", done.stderr)
    return "", [line for line in said.removeprefix("nats-server: ").split("\n") if line]


@pytest.mark.slow
@needs_nats_server
def test_real_server_agrees(tmp_path: Path) -> None:
    """The real server accepts what the corpus accepts, with the same digest, and says the same where recorded."""
    disagreements = []
    for case in CASES:
        digest, complaints = ask(tmp_path, case["text"])
        recorded = sorted(
            re.sub(r"^d\.conf:\d+:\d+: (Parse error|integer|config)", r"\1", line) for line in case["lines"]
        )
        if case["result"] == "ok":
            agrees = [digest] == case["lines"]
        else:
            agrees = not digest and (case["same"] == "verdict" or sorted(complaints) == recorded)
        if not agrees:
            disagreements.append((case["text"], case["lines"], digest or complaints))
    assert disagreements == []
