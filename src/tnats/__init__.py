"""tnats: a NATS server on trio, live or simulated by the same code. Start reading at docs/whats-here.md."""

__version__ = "0.1.0"

NATS_VERSION = "2.15.1"
"""The nats-server release whose behaviour is offered; clients switch features on by it (INFO `version`)."""
