"""Who gets in, in which order the ways in are tried, and what an outcome costs."""

from __future__ import annotations

import base64

import attrs
import bcrypt
import pytest
from nacl.signing import SigningKey
from tests.unit.auth.test_nkeys import USER_KEY

from tnats.auth.users import (
    Admitted,
    Authenticator,
    BcryptCheck,
    ConnectionType,
    Credentials,
    Outcome,
    Refusal,
    Refused,
    User,
    is_bcrypt,
)

SIGNER = SigningKey(bytes(range(32)))
HASH = bcrypt.hashpw(b"right", b"$2b$04$" + b"." * 22).decode()
NONCE = b"0123456789abcde"


@attrs.define
class Said:
    """A CONNECT."""

    user: str = ""
    password: str = ""
    auth_token: str = ""
    nkey: str = ""
    sig: str = ""
    account: str = ""
    new_account: bool = False


def signed(nonce: bytes = NONCE) -> Said:
    return Said(nkey=USER_KEY, sig=base64.urlsafe_b64encode(SIGNER.sign(nonce).signature).decode().rstrip("="))


def settled(outcome: Outcome) -> Admitted | Refused:
    return outcome.run() if isinstance(outcome, BcryptCheck) else outcome


def admits(credentials: Credentials, said: Said, **how: object) -> bool:
    outcome = Authenticator(credentials).check(said, nonce=NONCE, **how)  # type: ignore[arg-type]
    return isinstance(settled(outcome), Admitted)


def users(*entries: User, **more: object) -> Credentials:
    return Credentials(users=entries, **more)  # type: ignore[arg-type]


# ------------------------------------------------------------------ ways in


def test_everybody_gets_in_where_nothing_is_required() -> None:
    """Credentials that were sent anyway do not matter."""
    assert Authenticator(Credentials()).no_auth_required
    assert admits(Credentials(), Said(user="x", password="y"))


@pytest.mark.parametrize("token", ["right", HASH])
def test_token(token: str) -> None:
    """The token, plain or hashed, and nothing else."""
    credentials = Credentials(token=token)
    assert admits(credentials, Said(auth_token="right"))
    assert not admits(credentials, Said(auth_token="wrong"))
    assert not admits(credentials, Said(user="right", password="right"))
    assert not admits(credentials, Said())


@pytest.mark.parametrize("password", ["right", HASH])
def test_single_user(password: str) -> None:
    """Name and password must both fit."""
    credentials = Credentials(username="u", password=password)
    assert admits(credentials, Said(user="u", password="right"))
    assert not admits(credentials, Said(user="u", password="wrong"))
    assert not admits(credentials, Said(user="v", password="right"))
    assert not admits(credentials, Said(auth_token="right"))
    assert not admits(credentials, Said())


@pytest.mark.parametrize("password", ["right", HASH])
def test_list_of_users(password: str) -> None:
    """The user whose name and password fit is admitted as that user."""
    entry = User("u", password)
    outcome = Authenticator(users(entry, User("v", "other"))).check(Said(user="u", password="right"))
    assert settled(outcome) == Admitted(entry, "u")
    assert not admits(users(entry), Said(user="u", password="other"))
    assert not admits(users(entry), Said(user="w", password="right"))
    assert not admits(users(entry), Said())


def test_user_without_password_is_known_by_name() -> None:
    """An empty password in the list fits an empty one."""
    assert admits(users(User("u")), Said(user="u"))
    assert not admits(users(User("u")), Said(user="u", password="x"))


def test_empty_list_of_users_admits_nobody() -> None:
    """`users: []` asks for credentials that nobody has."""
    assert not Authenticator(users()).no_auth_required
    assert not admits(users(), Said())


def test_users_of_the_system_account_do_not_open_the_door() -> None:
    """With one list for an account and one for the system account, only those users get in."""
    credentials = users(User("hub", "pw"), User("sys", "pw", account="$SYS"))
    assert admits(credentials, Said(user="hub", password="pw"))
    assert admits(credentials, Said(user="sys", password="pw"))
    assert not admits(credentials, Said())
    assert not admits(credentials, Said(user="hub", password="no"))


def test_nkey_must_have_signed_the_nonce() -> None:
    """An unknown key, a missing, malformed or foreign signature is refused."""
    credentials = users(User(USER_KEY, is_nkey=True))
    assert Authenticator(credentials).nonce_required
    assert admits(credentials, signed())
    assert not admits(credentials, signed(b"another nonce"))
    assert not admits(credentials, Said(nkey=USER_KEY))
    assert not admits(credentials, Said(nkey=USER_KEY, sig="!"))
    assert not admits(users(User("UX", is_nkey=True)), signed())


def test_missing_nonce_cannot_be_signed() -> None:
    """A signature over nothing is none, should a connection ever lack its nonce."""
    outcome = Authenticator(users(User(USER_KEY, is_nkey=True))).check(signed(b""), nonce=b"")
    assert isinstance(outcome, Refused)


def test_wrong_nkey_does_not_fall_through_to_the_password() -> None:
    """Whoever tries with a key is judged by the key."""
    credentials = users(User("UX", is_nkey=True), User("u", "right"))
    said = signed()
    assert not admits(credentials, attrs.evolve(said, user="u", password="right"))
    assert admits(credentials, Said(user="u", password="right"))


@pytest.mark.parametrize("said", [Said(account="$SYS"), Said(new_account=True)])
def test_connect_that_names_an_account_is_refused(said: Said) -> None:
    """Even where nothing is required: nobody chooses an account for himself."""
    assert not admits(Credentials(), said)


# ------------------------------------------------------------------ no_auth_user


@pytest.mark.parametrize("entry", [User("guest", "pw"), User("guest", HASH), User("guest", is_nkey=True)])
def test_no_auth_user_stands_in_for_nobody(entry: User) -> None:
    """Whoever sends no credentials at all becomes that user, whatever its password."""
    credentials = users(entry, no_auth_user="guest")
    assert Authenticator(credentials).stands_in_for_nobody
    assert Authenticator(credentials).check(Said()) == Admitted(entry, "guest")


@pytest.mark.parametrize("said", [Said(user="x"), Said(password="x"), Said(auth_token="x")])
def test_no_auth_user_does_not_stand_in_for_wrong_credentials(said: Said) -> None:
    """Any credential at all must be right."""
    assert not admits(users(User("guest"), no_auth_user="guest"), said)


def test_an_nkey_is_a_credential_where_some_user_signs() -> None:
    """Where nobody does it is passed over (as nats-server 2.15.1 does); else it must be right."""
    assert admits(users(User("guest"), no_auth_user="guest"), Said(nkey="x"))
    assert not admits(users(User("guest"), User("U", is_nkey=True), no_auth_user="guest"), Said(nkey="x"))


@pytest.mark.parametrize(
    "entry", [User("guest", connection_types=frozenset({ConnectionType.WEBSOCKET})), User("guest", proxy_required=True)]
)
def test_no_auth_user_is_bound_by_its_own_limits(entry: User) -> None:
    """A user meant for other connections does not stand in on this one."""
    credentials = users(entry, no_auth_user="guest")
    assert not Authenticator(credentials).stands_in_for_nobody
    assert not admits(credentials, Said())


# ------------------------------------------------------------------ limits of a user


def test_connection_types() -> None:
    """A user with types is refused on all others, a user without on none."""
    entry = User("u", "pw", connection_types=frozenset({ConnectionType.MQTT}))
    said = Said(user="u", password="pw")
    assert not admits(users(entry), said)
    assert admits(users(entry), said, connection_type=ConnectionType.MQTT)
    assert all(admits(users(User("u", "pw")), said, connection_type=each) for each in ConnectionType)


def test_proxy_required() -> None:
    """Such a user gets in only through a trusted proxy, and the reason is told apart."""
    credentials = users(User("u", "pw", proxy_required=True))
    said = Said(user="u", password="pw")
    outcome = Authenticator(credentials).check(said)
    assert isinstance(outcome, Refused)
    assert outcome.reason is Refusal.PROXY_REQUIRED
    assert admits(credentials, said, via_trusted_proxy=True)


# ------------------------------------------------------------------ costs and secrets


def test_hash_is_never_compared_in_place() -> None:
    """A bcrypt comparison comes back as work for elsewhere; a plain one is settled at once."""
    assert isinstance(Authenticator(users(User("u", HASH))).check(Said(user="u", password="right")), BcryptCheck)
    assert isinstance(Authenticator(users(User("u", "x"))).check(Said(user="u", password="x")), Admitted)
    assert isinstance(Authenticator(users(User("u", "x"))).check(Said(user="v", password="x")), Refused)


@pytest.mark.parametrize(
    "said", [Said(user="nobody", password="x"), Said(user="plain", password="x"), Said(user="u", password="x")]
)
def test_refusals_cost_the_same_once_there_is_a_hash(said: Said) -> None:
    """An unknown name, a plain and a hashed password: a wrong guess costs one comparison of the same cost."""
    credentials = users(User("u", HASH), User("plain", "secret"))
    outcome = Authenticator(credentials).check(said)
    assert isinstance(outcome, BcryptCheck)
    assert outcome.hash.startswith("$2b$04$")
    assert isinstance(outcome.run(), Refused)


def test_hash_that_stands_for_nobody_fits_no_password() -> None:
    """Not even the empty password, and the comparison is a real one."""
    outcome = Authenticator(users(User("u", HASH))).check(Said(user="nobody"))
    assert isinstance(outcome, BcryptCheck)
    assert len(outcome.hash) == 60
    assert outcome.if_equal == outcome.if_different


@pytest.mark.parametrize("version", ["2a", "2b", "2x", "2y"])
def test_hashes_of_all_programs_are_known(version: str) -> None:
    """The letter only tells who wrote the hash."""
    stored = f"${version}{HASH[3:]}"
    assert is_bcrypt(stored)
    assert admits(Credentials(token=stored), Said(auth_token="right"))


@pytest.mark.parametrize("stored", ["$2a$04$short", "$2a$04$" + "?" * 53, "$2a$99$" + "a" * 53])
def test_malformed_hash_fits_nothing(stored: str) -> None:
    """It neither admits nor raises."""
    assert not admits(Credentials(token=stored), Said(auth_token=stored))


@pytest.mark.parametrize("password", ["x" * 100, "a\0b", "\ud800"])
def test_odd_passwords_do_no_harm(password: str) -> None:
    """Longer than bcrypt looks, with NUL, not even text: refused, not raised."""
    assert not admits(Credentials(token=HASH), Said(auth_token=password))
    assert not admits(Credentials(token="plain"), Said(auth_token=password))


def test_plain_passwords_are_noticed() -> None:
    """So that a server can warn; hashes and empty passwords are fine."""
    assert Authenticator(users(User("u", "x"))).has_plain_passwords
    assert not Authenticator(users(User("u", HASH), User("v"))).has_plain_passwords


def test_secrets_do_not_show() -> None:
    """Neither in the records' repr nor in what is logged about a refusal."""
    credentials = users(User("u", "hunter2"))
    outcome = Authenticator(credentials).check(Said(user="u", password="hunter3"))
    check = Authenticator(Credentials(token=HASH)).check(Said(auth_token="hunter4"))
    assert not any(secret in repr((credentials, outcome, check)) for secret in ("hunter", HASH))
