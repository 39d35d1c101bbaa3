"""What a server imports when it first needs it, imported before: nothing is imported inside a simulation."""

from __future__ import annotations

import tnats.jetstream.backup.receiving
import tnats.jetstream.backup.sending
import tnats.server.jetstream
import tnats.server.reports
import tnats.storage.cipher  # noqa: F401
