"""`python -m simulations list | run SCENARIO SEEDS | meta SCENARIO SEEDS`."""

from __future__ import annotations

import sys
from pathlib import Path

from tnats.harness.command import main

sys.exit(main(sys.argv[1:], Path(__file__).parent))
