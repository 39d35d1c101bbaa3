"""docs/configuration.md and conf/ keep up with the code. TNATS_REWRITE=1 writes the tables into the document."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.server.config.option_tables import option_tables

from tnats.server.config.baseline import complete
from tnats.server.config.load import read_options
from tnats.server.config.validation import unsupported, validate

ROOT = Path(__file__).parents[4]
MARK = "<!-- made by tests/unit/server/config/test_documentation.py -->"
SAMPLES = sorted(path for path in (ROOT / "conf").iterdir() if path.is_file())


def test_option_tables_are_current() -> None:
    """The tables in the documentation are what the rows say."""
    document = ROOT / "docs" / "configuration.md"
    text = document.read_text()
    if os.environ.get("TNATS_REWRITE") == "1":
        text = text.partition(MARK)[0] + MARK + "\n\n" + option_tables()
        document.write_text(text)
    assert text.partition(MARK)[2].strip() == option_tables().strip()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_sample_configuration_would_start(sample: Path) -> None:
    """Every sample is free of errors and warnings and asks for nothing that is not built."""
    options = read_options(str(sample), read=lambda path: Path(path).read_text(), env={"NATS_TOKEN": '"s3cr3t"'})
    complete(options)
    assert options.warnings == ()
    assert validate(options) == []
    assert unsupported(options) == []
