"""Entry of the `tnats` command.

`tnats serve` is taken out first, before anything of the command framework is imported: a server must be up in a
fraction of a second, and needs none of it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

EXIT_INTERRUPTED = 130
"""128 and the number of the signal, as shells have it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (the program's own when None); returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and arguments[0] == "serve":
            gc.disable()  # what a start makes is no garbage, and looking for it takes a tenth of the start
            from tnats.cli import serve

            return serve.main(arguments[1:])
        from tnats.cli import app

        return app.main(arguments)
    except KeyboardInterrupt:  # before anybody listened for it, or while nobody does
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
