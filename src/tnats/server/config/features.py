"""Which features of nats-server this release offers. One table; building a feature means adding its line to BUILT.

Every option row names the feature it belongs to (none for what every server has). A configuration that asks for a
feature outside BUILT is refused at start with the option's name and position: running without what was asked for,
say without TLS or without an account's limits, would be worse than not running.
"""

from __future__ import annotations

import enum


class Feature(enum.Enum):
    """Value: the feature's name in messages."""

    TLS = "TLS"
    TLS_HANDSHAKE_FIRST = "TLS before INFO (handshake_first)"
    OCSP = "OCSP"
    WINDOWS_CERTIFICATE_STORE = "the Windows certificate store"
    USERS = "users with passwords"
    NKEY_USERS = "nkey users"
    PERMISSIONS = "permissions"
    ALLOW_RESPONSES = "response permissions"
    CONNECTION_TYPES = "allowed connection types"
    AUTH_CALLOUT = "the auth callout"
    TRUSTED_PROXIES = "trusted proxies"
    PROXY_PROTOCOL = "the PROXY protocol"
    ACCOUNTS = "accounts"
    ACCOUNT_LIMITS = "limits of an account's clients"
    EXPORTS = "exports and imports between accounts"
    MESSAGE_TRACING = "message tracing"
    OPERATOR_MODE = "operator mode (JWT authentication)"
    SUBJECT_MAPPINGS = "subject mappings"
    SYSTEM_ACCOUNT = "the system account"
    CLUSTER = "clustering"
    GATEWAYS = "gateways"
    LEAF_NODES = "leaf nodes"
    WEBSOCKET = "WebSocket"
    MQTT = "MQTT"
    JETSTREAM = "JetStream"
    STORE_ENCRYPTION = "encryption of the store"
    BATCH_LIMITS = "limits of batch publishing"
    MONITORING = "HTTP monitoring"
    HTTPS_MONITORING = "HTTPS monitoring"
    LOG_FILE = "logging to a file"
    SYSLOG = "logging to syslog"
    PROFILING = "the profiling port"
    LAME_DUCK = "lame duck mode"
    IO_BOUND = "a bound on concurrent file operations (max_concurrent_io)"


BUILT: frozenset[Feature] = frozenset(
    {
        Feature.USERS,
        Feature.NKEY_USERS,
        Feature.PERMISSIONS,
        Feature.ALLOW_RESPONSES,
        Feature.CONNECTION_TYPES,
        Feature.ACCOUNTS,
        Feature.JETSTREAM,
        Feature.BATCH_LIMITS,
        Feature.STORE_ENCRYPTION,
        Feature.MONITORING,
        Feature.LOG_FILE,
        Feature.LAME_DUCK,
    }
)
