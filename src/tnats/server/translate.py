"""From configuration to what each part is told: parts know nothing of files, keys and flags."""

from __future__ import annotations

import sys

from tnats import NATS_VERSION
from tnats.auth.users import Authenticator
from tnats.broker.options import UNLIMITED, BrokerOptions
from tnats.runtime.api import Address
from tnats.server.config.addresses import split_host_and_maybe_port
from tnats.server.config.options import NO_CONNECTIONS, Options


def broker_options(options: Options, server_id: str, listening: Address) -> BrokerOptions:
    """What the broker needs to know; `listening` is the address with the real port."""
    host, port = advertised(options, listening)
    assert options.authorization is not None  # completed
    return BrokerOptions(
        server_id=server_id,
        server_name=options.server_name or server_id,
        jetstream=options.jetstream.enabled,
        domain=options.jetstream.domain,
        version=NATS_VERSION,
        language_version=language_version(),
        host=host,
        port=port,
        max_connections=0 if options.max_connections == NO_CONNECTIONS else options.max_connections,
        max_subscriptions=options.max_subscriptions or UNLIMITED,
        max_subscription_tokens=options.max_sub_tokens or UNLIMITED,
        max_control_line=options.max_control_line,
        max_payload=options.max_payload,
        max_pending=options.max_pending,
        max_closed_connections=options.max_closed_clients,
        no_fast_producer_stall=options.no_fast_producer_stall,
        no_header_support=options.no_header_support,
        auth_timeout_ns=options.authorization.timeout_ns,
        ping_interval_ns=options.ping_interval_ns,
        ping_max=options.ping_max,
        write_deadline_ns=options.write_deadline_ns,
        write_deadline_is_total=options.write_timeout == "close",
    )


def authenticator(options: Options) -> Authenticator:
    """Who may connect by these options."""
    return Authenticator(options.credentials())


def advertised(options: Options, listening: Address) -> Address:
    """The client address as others shall use it: `client_advertise`, its port being optional, or the real one."""
    if not options.client_advertise:
        return options.host, listening[1]
    return split_host_and_maybe_port(options.client_advertise, listening[1])


def language_version() -> str:
    """INFO's and /varz's `go`, which clients expect to be there."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
