"""A tnats server inside your tests: docs/testing.md has the guide.

with tnats.testing.serve() as server:
...  # connect any NATS client to server.url
"""

from __future__ import annotations

from tnats.testing.embedded import EmbeddedServer, ServerFailed, serve
from tnats.testing.troubles import NotThere

__all__ = ["EmbeddedServer", "NotThere", "ServerFailed", "serve"]
