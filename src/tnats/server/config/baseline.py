"""Defaults that depend on other options, filled in once file and command line are merged."""

from __future__ import annotations

import posixpath

from tnats.limits import SECOND_NS
from tnats.server.config.authorization import AUTH_TIMEOUT_NS, AuthorizationOptions
from tnats.server.config.clusters import CompressionOptions
from tnats.server.config.jetstream import JetStreamOptions
from tnats.server.config.options import ANY_PORT, DEFAULT_HOST, DEFAULT_PORT, Options
from tnats.server.config.tls import TlsOptions

DEFAULT_SYSTEM_ACCOUNT = "$SYS"
_ROUTE_POOL_SIZE = 3
_LEAF_PORT = 7422


def complete(options: Options) -> None:
    """Fill in, in place, what was left open. Ports stay -1 where any free port will do. Idempotent."""
    options.host = options.host or DEFAULT_HOST
    options.port = options.port or DEFAULT_PORT
    options.http_host = options.http_host or options.host
    if not options.http_base_path.startswith("/"):
        options.http_base_path = "/" + options.http_base_path
    options.http_base_path = posixpath.normpath(options.http_base_path)
    if options.authorization is None:
        options.authorization = AuthorizationOptions()
    _auth_timeout(options.authorization, options.tls)
    _complete_cluster(options)
    if options.gateway.port:
        options.gateway.host = options.gateway.host or DEFAULT_HOST
        _auth_timeout(options.gateway.authorization, options.gateway.tls)
    _complete_leafnodes(options)
    for door in (options.websocket, options.mqtt):
        if door.port:
            door.host = door.host or DEFAULT_HOST
    _complete_jetstream(options, options.jetstream)


def _auth_timeout(block: AuthorizationOptions, tls: TlsOptions | None) -> None:
    if block.timeout_ns == 0:
        block.timeout_ns = AUTH_TIMEOUT_NS if tls is None else tls.timeout_ns + SECOND_NS


def _complete_cluster(options: Options) -> None:
    cluster = options.cluster
    if options.gateway.name and not cluster.name:
        cluster.name = options.gateway.name
    if not cluster.port:
        return
    cluster.host = cluster.host or DEFAULT_HOST
    _auth_timeout(cluster.authorization, cluster.tls)
    cluster.pool_size = cluster.pool_size or _ROUTE_POOL_SIZE
    cluster.compression = cluster.compression or CompressionOptions(mode="accept")
    system_account = options.system_account or ("" if options.no_system_account else DEFAULT_SYSTEM_ACCOUNT)
    if cluster.pool_size > 0 and system_account and system_account not in cluster.accounts:
        cluster.accounts = [*cluster.accounts, system_account]


def _complete_leafnodes(options: Options) -> None:
    leaf = options.leafnodes
    if leaf.port:
        leaf.host = leaf.host or DEFAULT_HOST
        leaf.compression = leaf.compression or CompressionOptions(mode="s2_auto")
        if leaf.authorization.timeout_ns == 0:
            leaf.authorization.timeout_ns = AUTH_TIMEOUT_NS if leaf.tls is None else leaf.tls.timeout_ns + SECOND_NS
    for remote in leaf.remotes:
        remote.compression = remote.compression or CompressionOptions(mode="s2_auto")
        remote.urls = [_with_port(url) for url in remote.urls]


def _with_port(url: str) -> str:
    """A leaf node URL with nats-server's default port where it names none."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    host = authority.rpartition("@")[2]
    has_port = host.rpartition("]")[2].startswith(":") if host.startswith("[") else ":" in host
    return url if has_port or not separator else f"{scheme}://{authority}:{_LEAF_PORT}{slash}{path}"


def _complete_jetstream(options: Options, jetstream: JetStreamOptions) -> None:
    jetstream.store_dir = jetstream.store_dir or options.store_dir
    if jetstream.request_queue_limit < 0:
        jetstream.request_queue_limit = JetStreamOptions().request_queue_limit
    if jetstream.info_queue_limit <= 0:
        jetstream.info_queue_limit = jetstream.request_queue_limit


def any_port(port: int) -> int:
    """The number to bind for a configured port: 0, "any free one", for -1."""
    return 0 if port == ANY_PORT else port
