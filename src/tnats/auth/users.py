"""Who may connect: token, user and password, a list of users, nkey users; pure (client protocol, "Auth on the wire").

Purpose: decide what a CONNECT amounts to. Rules, in this order:

1. A CONNECT that says `account` or `new_account` is refused, whatever else it holds.
2. An `nkey` must be known and must have signed the nonce. There is no falling through to the other ways.
3. A list of users: `user` must be in it and `pass` must fit.
4. The token, or the single user and password.

`no_auth_user` stands in only for a client that sent no credentials at all. A user may be limited to some connection
types, or to connections that come through a trusted proxy.

Passwords and tokens that are bcrypt hashes cost tens of milliseconds to compare. `check` never does that: it returns
a `BcryptCheck`, which the caller runs away from the reactor (`Processor.offload`, as "login") and whose `run`
gives the outcome. Plain ones are compared at once, in constant time.

User names cannot be probed by time: an unknown name is compared too, and once any secret is a bcrypt hash, every
refusal for a wrong name or password costs one bcrypt comparison.
"""

from __future__ import annotations

import enum
import hmac
import re
from typing import Protocol

import attrs

from tnats.auth import nkeys
from tnats.auth.permissions import Permissions
from tnats.records import frozen

GLOBAL_ACCOUNT = "$G"

_BCRYPT = re.compile(r"\$2[abxy]\$([0-9]{2})\$")
_BCRYPT_PASSWORD_BYTES_MAX = 72  # bcrypt itself looks no further
_NOBODY_HASH = "$2b${cost:02d}$......................XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX"
"""Well-formed, and no known password fits."""


class ConnectionType(enum.Enum):
    """Ways to reach the server that a user can be limited to; the value is the word in configurations and JWTs."""

    STANDARD = "STANDARD"
    WEBSOCKET = "WEBSOCKET"
    LEAFNODE = "LEAFNODE"
    LEAFNODE_WS = "LEAFNODE_WS"
    MQTT = "MQTT"
    MQTT_WS = "MQTT_WS"
    IN_PROCESS = "IN_PROCESS"


class Connect(Protocol):
    """What is asked of a CONNECT; "" where it does not say."""

    @property
    def user(self) -> str: ...
    @property
    def password(self) -> str: ...
    @property
    def auth_token(self) -> str: ...
    @property
    def nkey(self) -> str: ...
    @property
    def sig(self) -> str: ...
    @property
    def account(self) -> str: ...
    @property
    def new_account(self) -> bool: ...


@frozen
class User:
    """An entry of a users list: with `nkey` one that signs, else one with a password (maybe an empty one)."""

    name: str
    """User name, or the public nkey."""
    password: str = attrs.field(default="", repr=False)
    is_nkey: bool = False
    account: str = GLOBAL_ACCOUNT
    permissions: Permissions | None = None
    connection_types: frozenset[ConnectionType] = frozenset()
    """Empty: any."""
    proxy_required: bool = False


@frozen
class Credentials:
    """Everything an `Authenticator` decides by. At most one of `users`, `token` and `username` is set."""

    users: tuple[User, ...] | None = None
    """None: no list configured. An empty list admits nobody."""
    token: str = attrs.field(default="", repr=False)
    username: str = ""
    password: str = attrs.field(default="", repr=False)
    no_auth_user: str = ""
    proxy_required: bool = False
    """For the token or the single user; users have their own."""


class Refusal(enum.Enum):
    """Why a client was refused, for log and closed-connection list; the client itself is told nothing but
    `Authorization Violation`. The value is nats-server's closed reason.
    """

    AUTHENTICATION = "Authentication Failure"
    PROXY_REQUIRED = "Proxy Required"


@frozen
class Admitted:
    user: User | None
    """None: admitted by token, by the single user, or because nothing is required."""
    name: str
    """What monitoring shows as `authorized_user`; a token shows as `[REDACTED]`."""


@frozen
class Refused:
    reason: Refusal
    detail: str
    """For the debug log."""


@frozen
class BcryptCheck:
    """A comparison still to be made, and what follows from it. Costs tens of milliseconds: offload `run`."""

    hash: str = attrs.field(repr=False)
    password: str = attrs.field(repr=False)
    if_equal: Admitted | Refused
    if_different: Refused

    def run(self) -> Admitted | Refused:
        # Only servers with hashed passwords need it.
        import bcrypt

        secret = self.password.encode("utf-8", "surrogatepass")[:_BCRYPT_PASSWORD_BYTES_MAX]
        # The letter after $2 names who wrote the hash; the computation is the same for all four.
        stored = "$2b" + self.hash[3:]
        try:
            equal = bcrypt.checkpw(secret, stored.encode("utf-8", "surrogatepass"))
        except ValueError:  # a hash of the wrong length or alphabet fits no password
            equal = False
        return self.if_equal if equal else self.if_different


Outcome = Admitted | Refused | BcryptCheck


def is_bcrypt(secret: str) -> bool:
    """Whether a configured password or token is a bcrypt hash."""
    return _BCRYPT.match(secret) is not None


class Authenticator:
    """Decides about CONNECTs by one set of credentials; a reload builds a new one."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        users = credentials.users or ()
        self._users = {user.name: user for user in users if not user.is_nkey}
        self._nkey_users = {user.name: user for user in users if user.is_nkey}
        secrets = [user.password for user in users] + [credentials.token, credentials.password]
        costs = [int(match.group(1)) for secret in secrets if (match := _BCRYPT.match(secret))]
        self._nobody_hash = _NOBODY_HASH.format(cost=max(costs)) if costs else None

    @property
    def no_auth_required(self) -> bool:
        """Nobody needs credentials."""
        own = self._credentials
        return own.users is None and not own.token and not own.username

    @property
    def nonce_required(self) -> bool:
        """INFO must carry a nonce for clients to sign."""
        return bool(self._nkey_users)

    @property
    def stands_in_for_nobody(self) -> bool:
        """Clients without credentials are let in as `no_auth_user` (INFO then says that no auth is required)."""
        return self._stand_in(ConnectionType.STANDARD, via_trusted_proxy=False) is not None

    @property
    def has_plain_passwords(self) -> bool:
        """Some password is neither hashed nor empty: worth a warning at start."""
        own = self._credentials
        secrets = [own.password, *(user.password for user in self._users.values())]
        return any(secret and not is_bcrypt(secret) for secret in secrets)

    def check(
        self,
        connect: Connect,
        *,
        nonce: bytes = b"",
        connection_type: ConnectionType = ConnectionType.STANDARD,
        via_trusted_proxy: bool = False,
    ) -> Outcome:
        """What a CONNECT amounts to; `nonce` is what INFO carried."""
        if connect.account or connect.new_account:
            return self._refused("CONNECT may not name an account")
        if self.no_auth_required:
            return Admitted(None, connect.user)
        name, password, token = connect.user, connect.password, connect.auth_token
        nkey = connect.nkey if self._nkey_users else ""  # it says nothing where nobody signs
        if not (name or password or nkey or token):
            stand_in = self._stand_in(connection_type, via_trusted_proxy=via_trusted_proxy)
            if stand_in is not None:
                return Admitted(stand_in, stand_in.name)
        if self._credentials.users is not None:
            if nkey:
                return self._check_nkey(nkey, connect.sig, nonce, connection_type, via_trusted_proxy)
            return self._check_user(name, password, connection_type, via_trusted_proxy)
        return self._check_single(name, password, token, via_trusted_proxy)

    # ------------------------------------------------------------------ the ways in

    def _check_nkey(
        self, nkey: str, signature_text: str, nonce: bytes, connection_type: ConnectionType, via_trusted_proxy: bool
    ) -> Outcome:
        user = self._nkey_users.get(nkey)
        if user is None or not _type_allowed(user, connection_type):
            return Refused(Refusal.AUTHENTICATION, "nkey not known")
        if user.proxy_required and not via_trusted_proxy:
            return Refused(Refusal.PROXY_REQUIRED, f"user {nkey} must connect through a trusted proxy")
        if nkey == self._credentials.no_auth_user:
            return Admitted(user, nkey)
        if not signature_text:
            return Refused(Refusal.AUTHENTICATION, "Signature missing")
        signature = nkeys.decode_signature(signature_text)
        if signature is None:
            return Refused(Refusal.AUTHENTICATION, "Signature not valid base64")
        if not nonce or not nkeys.verify(nkey, nonce, signature):
            return Refused(Refusal.AUTHENTICATION, "Signature not verified")
        return Admitted(user, nkey)

    def _check_user(
        self, name: str, password: str, connection_type: ConnectionType, via_trusted_proxy: bool
    ) -> Outcome:
        user = self._users.get(name) if name else None
        if user is None:
            return self._compared("", password, self._refused(_unknown(name)))
        if not _type_allowed(user, connection_type):
            return self._compared(
                user.password, password, self._refused(f"user {name!r} may not use {connection_type.value} connections")
            )
        if user.proxy_required and not via_trusted_proxy:
            refused = Refused(Refusal.PROXY_REQUIRED, f"user {name!r} must connect through a trusted proxy")
            return self._compared(user.password, password, refused)
        return self._compared(user.password, password, Admitted(user, name))

    def _check_single(self, name: str, password: str, token: str, via_trusted_proxy: bool) -> Outcome:
        own = self._credentials
        if own.proxy_required and not via_trusted_proxy:
            return Refused(Refusal.PROXY_REQUIRED, "clients must connect through a trusted proxy")
        if own.token:
            return self._compared(own.token, token, Admitted(None, "[REDACTED]"))
        if not _equal(own.username, name):
            return self._compared(own.password, password, self._refused(_unknown(name)))
        return self._compared(own.password, password, Admitted(None, name))

    def _stand_in(self, connection_type: ConnectionType, *, via_trusted_proxy: bool) -> User | None:
        name = self._credentials.no_auth_user
        user = self._nkey_users.get(name) or self._users.get(name)
        if user is None or not _type_allowed(user, connection_type):
            return None
        return None if user.proxy_required and not via_trusted_proxy else user

    # ------------------------------------------------------------------ comparing

    def _compared(self, secret: str, given: str, if_equal: Admitted | Refused) -> Outcome:
        """`if_equal` if `given` fits `secret`. A refusal costs the same whatever was wrong."""
        wrong = self._refused("wrong password or token")
        if is_bcrypt(secret):
            return BcryptCheck(secret, given, if_equal, if_equal if isinstance(if_equal, Refused) else wrong)
        if _equal(secret, given) and isinstance(if_equal, Admitted):
            return if_equal
        refused = if_equal if isinstance(if_equal, Refused) else wrong
        if self._nobody_hash is None:
            return refused
        return BcryptCheck(self._nobody_hash, given, refused, refused)

    @staticmethod
    def _refused(detail: str) -> Refused:
        return Refused(Refusal.AUTHENTICATION, detail)


def _unknown(name: str) -> str:
    return f"user {name!r} not known" if name else "no user was named"


def _type_allowed(user: User, connection_type: ConnectionType) -> bool:
    return not user.connection_types or connection_type in user.connection_types


def _equal(secret: str, given: str) -> bool:
    """Compared in a time that does not depend on where they differ."""
    return hmac.compare_digest(secret.encode("utf-8", "surrogatepass"), given.encode("utf-8", "surrogatepass"))
