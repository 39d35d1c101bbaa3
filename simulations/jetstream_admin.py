"""Streams and consumers are administered on the real server, and backed up."""

from __future__ import annotations

from tnats.harness.sim.jetstream_admin import AdminDrill


class JetStreamAdmin(AdminDrill):
    """Assets are as they were made, changed or deleted, and backups are whole, under everything."""


scenario = JetStreamAdmin
