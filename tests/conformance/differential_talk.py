"""Conversations made up at random, for two servers to be compared by: what clients say, when, and in what pieces.

Left out by construction is what chance decides: a queue group has one member, and subjects of the system are not used.
"""

from __future__ import annotations

import random

import attrs

TOKENS = [b"a", b"a", b"b", b"foo", b"foo", b"*", b">", b"", b"A", b"foo*", b"\xff", b"x>", b"\x0b", b'"', b"\xc3\xa9"]
PREFIXES = [b"_INBOX", b"_R_", b"_GR_", b"$NRG", b"$GNR", b"$JS.ACK", b"$KV"]
BLANKS = [b"  ", b"\t", b" \t ", b"\t\t"]
FENCE = b"PING\r\n"
OTHERS = [b"+OK\r\n", b"INFO {}\r\n", b"ping now\n", b"PUBX\r\n", b"\r\n", b"MSG a 1\r\n"]
NUMBERS = [
    b"-1",
    b"0",
    b"x",
    b"1e1",
    b"1_0",
    b"\xd9\xa1",
    b"99999999999",
    b"1000000000",
    b"4294967297",
    b"%d" % (2**64 + 1),
]
EXTRAS = r"""
    "name":"n\u00e9" "name":1 "protocol":2 "protocol":1.0 "protocol":1e0 "VERBOSE":true "verbose":null "verbose":1
    "account":"A" "unknown":[1,{"a":[]}] "lang":"go","version":"1" "tls_required":true "name":"\ud800"
    "echo":false,"echo":true "user":"" "jwt":"x" "nkey":"x" "sig":"x" "protocol":-0 "protocol":9223372036854775808
    "new_account":false "verbo\u0073e":true "import":{} "remote_account":"x" "auth_token":"t" "a":NaN "a":1.e5 "a":01
    "a":- "a":"\x" "no_responders":"true" "headers":"x" "export":1 "import":{"allow":["a",1]} "headers":true, "nonce":1
    "proxy_sig":1 "verbose":tru
""".split()  # noqa: SIM905
"""Members of a CONNECT, right and wrong."""
DOCUMENTS = [b"", b"{", b"null", b"[]", b"1", b"\xff{}", b"{}\xff", b'{"a":"\xff"}', b'"x"', b"true", b"{}}", b"\x0b{}",
             b"\xef\xbb\xbf{}", b'{"name":"\x01"}', b'{"name":"\t"}']  # fmt: skip
"""What may stand in place of CONNECT's object."""


@attrs.frozen
class Turn:
    """What one client sends before anybody else does, in its pieces."""

    client: int
    pieces: list[bytes]

    @property
    def answers(self) -> int:
        """PONGs that come if the server reads it as it was meant."""
        lines = b"".join(self.pieces).split(b"\n")
        return sum(line[:4].upper() == b"PING" for line in lines)


class Talker:
    """A generator of conversations; equal seeds give equal ones."""

    def __init__(self, seed: int, users: list[str], strangeness: float) -> None:
        self.random = random.Random(seed)
        self.users = users
        self.strangeness = strangeness
        """Probability that an operation is not the plain and lawful form of itself."""
        self._queues = 0

    def conversation(self) -> list[Turn]:
        """Turns of one to three clients; each turn but the last of a stuck client ends with a PING."""
        count = self.random.randint(1, 3)
        turns = [Turn(client, self._cut(self._connect() + FENCE)) for client in range(count) if self._chance(0.93)]
        for _ in range(self.random.randint(2, 9)):
            said = b"".join(self._operation() for _ in range(self.random.randint(1, 4)))
            if self._chance(self.strangeness / 4):
                said = self._damage(said)
            turns.append(Turn(self.random.randrange(count), self._cut(said + FENCE)))
        return turns

    def _chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def _strange(self) -> bool:
        return self._chance(self.strangeness)

    def _one(self, choices: list[bytes]) -> bytes:
        return self.random.choice(choices)

    def _cut(self, said: bytes) -> list[bytes]:
        cuts = sorted(self.random.randint(0, len(said)) for _ in range(self.random.choice([0, 0, 1, 2, 5])))
        return [said[i:j] for i, j in zip([0, *cuts], [*cuts, len(said)], strict=True) if i < j]

    def _damage(self, said: bytes) -> bytes:
        at = self.random.randint(0, len(said))
        put = self._one([b"", b" ", b"\r", b"\n", b"\r\n", b"\x00", b"x", b"9", b"\xff", b"-", b"\t"])
        return said[:at] + put + said[at + self.random.randint(0, 2) :]

    def _line(self, verb: bytes, words: list[bytes]) -> bytes:
        if self._strange():
            verb = bytes(self.random.choice([byte, byte | 32]) if byte > 64 else byte for byte in verb)
        line = verb
        for word in words:
            line += (self._one(BLANKS) if self._strange() else b" ") + word
        if self._strange():
            line += self._one([b" ", b"\t", b" x", b""])
        return line + (self._one([b"\n", b"\r\n"]) if self._strange() else b"\r\n")

    def _subject(self) -> bytes:
        tokens = [self._one(TOKENS if self._strange() else TOKENS[:7]) for _ in range(self.random.randint(1, 3))]
        if self._chance(0.15):
            tokens.insert(0, self._one(PREFIXES))
        if self._chance(self.strangeness / 10):
            tokens.append(b"t" * self.random.choice([90, 250, 1000, 4090]))
        return b".".join(tokens)

    def _literal(self) -> bytes:
        return self._subject().replace(b"*", b"b").replace(b">", b"b") if self._chance(0.85) else self._subject()

    def _operation(self) -> bytes:
        kind = self.random.random()
        if kind < 0.42:
            return self._publish()
        if kind < 0.72:
            return self._subscribe()
        if kind < 0.86:
            most = [] if self._chance(0.5) else [self._number(self.random.randint(0, 3))]
            return self._line(b"UNSUB", [self._sid(), *most] if not self._strange() else most)
        if kind < 0.90:
            return self._connect()
        if kind < 0.93 or self.random.random() > self.strangeness:
            return self._line(b"PONG", [])
        return self._one(OTHERS)

    def _number(self, number: int) -> bytes:
        if self._strange():
            return self._one([*NUMBERS, b"+%d" % number, b"%d " % number])
        return b"%d" % number

    def _sid(self) -> bytes:
        return self._one([b"1", b"2", b"3", b"s" * 9, b"\xff", b"1.*"] if self._strange() else [b"1", b"2", b"3"])

    def _subscribe(self) -> bytes:
        words = [self._subject(), self._sid()]
        if self._chance(0.2):
            self._queues += 1
            words.insert(1, b"q%d" % self._queues)
        if self._chance(self.strangeness / 4):
            words.insert(1, self._one([b"_sys_", b"extra"]))
        return self._line(b"SUB", words if not self._chance(self.strangeness / 4) else words[1:])

    def _publish(self) -> bytes:
        size = self.random.choice([0, 1, 5, 5, 20, 100, 101, 5000, 40_000] if self._chance(0.3) else [0, 3, 12, 30])
        body = bytes(self.random.choices(b"xyz \r\n:", k=min(size, 40)))
        body = (body + b"x" * size)[:size]
        words = [self._literal()]
        if self._chance(0.4):
            words.append(self._literal())
        verb = b"PUB"
        if self._chance(0.3):
            verb = b"HPUB"
            headers = self._one([b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0 503\r\n\r\n", b"junk"])
            body = headers + body
            words.append(self._number(self.random.choice([len(headers)] * 6 + [0, 1, len(body), len(body) + 1])))
        words.append(self._number(len(body)))
        if self._chance(self.strangeness / 6):
            words.append(b"1")
        if self._chance(self.strangeness / 4):
            body += self._one([b"x", b"\r", b"\n", b"xx"])
        end = self._one([b"\n", b"\r", b"xx"]) if self._chance(self.strangeness / 6) else b"\r\n"
        return self._line(verb, words) + body + end

    def _connect(self) -> bytes:
        said = []
        for key, weight in (
            ("verbose", 0.25),
            ("pedantic", 0.3),
            ("echo", 0.7),
            ("headers", 0.8),
            ("no_responders", 0.4),
        ):
            if self._chance(0.85):
                said.append(f'"{key}":{"true" if self._chance(weight) else "false"}')
        if self._chance(0.5):
            said.append(f'"protocol":{self.random.choice([0, 1, 1, 1])}')
        if self.users and self._chance(0.8):
            said.append(f'"user":"{self.random.choice(self.users)}","pass":"p"')
        if self._strange():
            said.append(self.random.choice(EXTRAS))
        text = ("{" + ",".join(said) + "}").encode()
        if self._chance(self.strangeness / 5):
            text = self._one([*DOCUMENTS, text + b"x", b" " + text + b" ", text + text, text[:-1]])
        return self._line(b"CONNECT", [text])
