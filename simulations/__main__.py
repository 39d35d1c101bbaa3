"""`python -m simulations ...` is `tnats sim ...` from a clone."""

from __future__ import annotations

import sys
from pathlib import Path

from tnats.__main__ import main

sys.exit(main(["sim", "--dir", str(Path(__file__).parent), *sys.argv[1:]]))
