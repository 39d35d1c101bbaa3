"""A NATS client for trio, live or simulated: docs/client.md has the guide.

async with tnats.client.connect("nats://127.0.0.1:4222") as nc:
    await nc.publish("greet.joe", b"hello")
"""

from __future__ import annotations

from tnats.client.client import Client
from tnats.client.connect import connect
from tnats.client.connection import Statistics, Status
from tnats.client.errors import (
    AuthorizationFailed,
    BadSubject,
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    NoResponders,
    PayloadTooLarge,
    PendingBufferFull,
    PermissionsViolation,
    ServerError,
    SubscriptionClosed,
    TimedOut,
)
from tnats.client.events import (
    Closed,
    Connected,
    Disconnected,
    ErrorReported,
    Event,
    LameDuck,
    Reconnected,
    ReconnectFailed,
    ServersDiscovered,
    SlowConsumer,
)
from tnats.client.message import HeadersLike, Message
from tnats.client.options import ConnectOptions, Options
from tnats.client.requests import ReplyStream
from tnats.client.subscription import Subscription

__all__ = [
    "AuthorizationFailed",
    "BadSubject",
    "Client",
    "ClientError",
    "Closed",
    "ConnectFailed",
    "ConnectOptions",
    "Connected",
    "ConnectionClosed",
    "ConnectionLost",
    "Disconnected",
    "ErrorReported",
    "Event",
    "HeadersLike",
    "LameDuck",
    "Message",
    "NoResponders",
    "Options",
    "PayloadTooLarge",
    "PendingBufferFull",
    "PermissionsViolation",
    "ReconnectFailed",
    "Reconnected",
    "ReplyStream",
    "ServerError",
    "ServersDiscovered",
    "SlowConsumer",
    "Statistics",
    "Status",
    "Subscription",
    "SubscriptionClosed",
    "TimedOut",
    "connect",
]
