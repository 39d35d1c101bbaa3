"""Transactions over several subjects of the real server."""

from __future__ import annotations

from tnats.harness.sim.jetstream_transactions import TransactionDrill


class JetStreamTransactions(TransactionDrill):
    """Atomic batches over several lists, guarded by what was read, and reads of all lists; under everything."""


scenario = JetStreamTransactions
