"""Settings shared by all tests: hypothesis profiles, and that Ctrl-C means what it does in a terminal.

`default` is derandomised, so that a run says the same on every machine; `long` (HYPOTHESIS_PROFILE=long) draws
anew each time and looks at twenty times as many examples.
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell's background job has it; processes that tests start and interrupt would ignore it as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "default", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "long", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
