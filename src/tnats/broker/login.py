"""CONNECT: what a client says of itself, who it is found to be, and the account that it enters.

A password hashed by bcrypt takes long to compare: the connection is halted, and its task calls `finish`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnats.auth.users import Admitted, BcryptCheck, Outcome, Refusal, Refused
from tnats.broker.identity import Identity
from tnats.broker.state import State
from tnats.ids import NONCE_ENTROPY_BYTES, encode_nonce
from tnats.wire import errors
from tnats.wire.connect import ConnectInfo, parse_connect
from tnats.wire.errors import ClosedReason

if TYPE_CHECKING:
    from tnats.broker.connection import Connection


class Login:
    """How one connection logs in. `options`: of the last CONNECT; `identity`: what was found by them."""

    __slots__ = ("_check", "_connection", "identity", "nonce", "options")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.options = ConnectInfo()
        self.identity = Identity()
        self.nonce = ""
        self._check: BcryptCheck | None = None

    @property
    def is_pending(self) -> bool:
        """Whether `finish` is to be called."""
        return self._check is not None

    def begin(self) -> None:
        """Decide what may come before CONNECT."""
        connection = self._connection
        gatekeeper = connection.broker.gatekeeper
        if gatekeeper.nonce_required:
            self.nonce = encode_nonce(connection.broker.runtime.chance.entropy(NONCE_ENTROPY_BYTES))
        connection.inbound.locked = not gatekeeper.no_auth_required
        connection.inbound.ceremony = True  # absent options default to verbose and pedantic
        if not connection.inbound.locked:
            connection.account.clients[connection.cid] = connection
            connection.forget_plans()

    def on_connect(self, arguments: bytes) -> None:
        """Handle CONNECT."""
        connection = self._connection
        options = parse_connect(arguments, self.options)
        if options is None:
            connection.violate("bad CONNECT")
            return
        if connection.state is State.OPEN:
            self._leave_account()  # a second CONNECT; before the first one, telnet users may have subscribed already
        connection.move_to(State.LOGGING_IN)
        self.options = options
        connection.rtt_ns = max(1, connection.broker.now_ns() - connection.started_ns)  # until the first PONG
        connection.broker.keepalive.watch(connection)
        outcome = self._judge()
        if isinstance(outcome, BcryptCheck):
            self._check = outcome
            connection.halt()
        else:
            self._settle(outcome)
            self._take_options()

    def on_locked(self) -> None:
        """Something else came before CONNECT where one must log in: perhaps there is a user for those who do not."""
        outcome = self._judge()
        self._connection.move_to(State.LOGGING_IN)
        self._settle(outcome if isinstance(outcome, Admitted) else _NO_CREDENTIALS)

    async def finish(self) -> None:
        """Compare the password, and go on where CONNECT left off."""
        connection, check = self._connection, self._check
        assert check is not None
        outcome = await connection.broker.runtime.processor.offload(check.run, kind="login")
        self._check = None
        if connection.state is State.CLOSED:
            return
        self._settle(outcome)
        self._take_options()
        connection.go_on()

    def judge_again(self) -> None:
        """Who may connect has changed: judge the last CONNECT anew."""
        connection = self._connection
        if connection.inbound.locked or connection.state not in (State.GREETED, State.OPEN):
            return
        outcome = self._judge()
        if isinstance(outcome, BcryptCheck):
            outcome = outcome.if_equal  # the password was compared when it was given
        if isinstance(outcome, Refused) or (
            outcome.user is not None and outcome.user.account != connection.account.name
        ):
            connection.broker.log.error(f"{connection} - authentication error: no longer admitted since the reload")
            connection.send_error(errors.AUTHORIZATION_VIOLATION)
            return
        self._take_user(outcome)
        connection.subscriptions.judge_again()

    def _judge(self) -> Outcome:
        connection = self._connection
        return connection.broker.gatekeeper.check(
            self.options, nonce=self.nonce.encode(), connection_type=connection.connection_type
        )

    def _settle(self, outcome: Admitted | Refused) -> None:
        """Enter the account, or be refused."""
        connection = self._connection
        if isinstance(outcome, Refused):
            connection.broker.log.error(f"{connection} - authentication error: {outcome.detail}")
            connection.outbound.put_bytes(errors.AUTHORIZATION_VIOLATION.line)
            connection.close(ClosedReason(outcome.reason.value))
            return
        connection.move_to(State.OPEN)
        user = outcome.user
        account = connection.broker.account(user.account) if user is not None else connection.broker.account()
        if account is not connection.account:
            self._leave_account()
            connection.account = account
        self._take_user(outcome)
        connection.inbound.locked = False
        account.clients[connection.cid] = connection
        connection.broker.on_logged_in(connection)

    def _take_user(self, outcome: Admitted) -> None:
        """Name and permissions."""
        self.identity = Identity(outcome)
        self._connection.outbound.tracks_replies = self.identity.may_respond
        self._connection.forget_plans()

    def _take_options(self) -> None:
        """What CONNECT asks for, once it is admitted."""
        connection, options = self._connection, self.options
        if connection.state is not State.OPEN:
            return
        if options.protocol not in (0, 1):
            connection.send_error(errors.INVALID_CLIENT_PROTOCOL)
            return
        headers = options.headers and not connection.broker.options.no_header_support
        if options.no_responders and not headers:
            connection.send_error(errors.NO_RESPONDERS_REQUIRES_HEADERS)
            return
        inbound = connection.inbound
        inbound.headers = headers
        connection.outbound.headers = headers
        inbound.no_responders = options.no_responders
        inbound.echo = options.echo
        inbound.ceremony = options.verbose or options.pedantic
        connection.say_ok()

    def _leave_account(self) -> None:
        """Drop the subscriptions of an earlier CONNECT."""
        connection = self._connection
        connection.subscriptions.leave()
        connection.account.clients.pop(connection.cid, None)
        connection.wake()


_NO_CREDENTIALS = Refused(Refusal.AUTHENTICATION, "something other than CONNECT came first")
