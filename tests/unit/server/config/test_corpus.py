"""The corpus of configurations: what each one is worth, digest or complaints.

corpus.jsonl has one case a line: `text`; `result` (ok, warn, error); `lines` (the digest, or the complaints in order);
and `same`, how nats-server 2.15.1 sees it: `text` (the same digest or the same words), `verdict` (accepted or refused
alike, in other words), `differs` (on purpose: unquoted words that begin with a digit are strings, sizes do not
overflow, a block string at the end of the file ends before its bracket). tests/conformance/test_config.py asks the
real server.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tnats.server.config.load import read_options
from tnats.server.config.problems import ConfigError

CASES = [json.loads(line) for line in (Path(__file__).parent / "corpus.jsonl").read_text().splitlines()]
ENV = {"PORT": "4333"}


def judge(text: str) -> tuple[str, list[str]]:
    """(result, lines) as the corpus has them."""
    try:
        options = read_options("d.conf", read=lambda _: text, env=ENV)
    except ConfigError as error:
        return "error", str(error).split("\n")
    if options.warnings:
        return "warn", [str(warning) for warning in options.warnings]
    return "ok", [options.config_digest]


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case["text"])[:60])
def test_configuration_is_judged_as_recorded(case: dict[str, object]) -> None:
    """Each configuration has its recorded digest, or its recorded complaints at their positions."""
    assert judge(str(case["text"])) == (case["result"], case["lines"])
