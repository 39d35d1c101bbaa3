"""`tnats check` on directories of a real disk: exit codes and the one line of a refusal."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import trio

from tnats.cli.app import main
from tnats.cli.session import run
from tnats.jetstream.stream.entries import Append, encode
from tnats.runtime.api import Runtime
from tnats.storage.encryption import Cipher, Encryption
from tnats.storage.message_log import Message
from tnats.storage.store import StoreOptions
from tnats.storage.store_open import open_store


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store with one stream of ten messages; the last five stand in the journal alone."""
    fill(tmp_path)
    return tmp_path / "js"


def fill(tmp_path: Path, encryption: Encryption | None = None) -> None:
    async def work(runtime: Runtime) -> None:
        entropy = runtime.chance.rng("store").randbytes
        options = StoreOptions(encryption=encryption)
        store = await open_store(
            runtime.disk, runtime.clock, entropy, f"{tmp_path}/js", boot_id="boot", options=options
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run)
            stream = await store.open_stream("S")
            stream.log.end_recovery()
            for sequence in range(1, 11):
                body = encode(Append(sequence, 1, [(b"s", b"", b"payload")], []))
                await stream.commit.propose_nowait([body]).wait()
                stream.applied += 1
                if sequence <= 5:
                    await stream.log.append([Message(sequence, 1, b"s", b"", b"payload")])
            store.stop()
        await store.close()

    assert run(work) == 0


def test_clean_damaged_and_repaired(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 for a sound store; 1 with the damaged bytes or the corrected bit in a line; a repair makes it 0 again."""
    assert main(["check", str(directory)]) == 0
    assert "stream S: 5 messages in files, sequences 1-10" in capsys.readouterr().out
    path = next(directory.glob("tnats/streams/*/*.seg"))
    sound = path.read_bytes()
    flipped = bytearray(sound)
    flipped[8192 + 60] ^= 4
    path.write_bytes(flipped)
    assert main(["check", str(directory)]) == 1
    assert f"corrected {path}" in capsys.readouterr().out
    assert main(["check", "--repair", str(directory)]) == 0
    assert path.read_bytes() == sound
    path.write_bytes(sound[:8192] + b"\xff" * 64 + sound[8256:])
    part = next(directory.glob("tnats/journal/*.part"))
    part.write_bytes(part.read_bytes()[:8192])
    capsys.readouterr()
    assert main(["check", "--json", str(directory)]) == 1
    records = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert records[-1]["is_clean"] is False
    assert any(record.get("kind") == "damaged" and record["path"] == str(part) for record in records)


def test_an_encrypted_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key comes from a file or the environment; without it nothing is looked at, and bits are put right with it."""
    fill(tmp_path, Encryption("sesame", Cipher.AES))
    directory = tmp_path / "js"
    key_file = tmp_path / "key"
    for text, code in (("", 2), ("wrong", 2), ("sesame\n", 0)):
        key_file.write_text(text)
        assert main(["check", str(directory), "--key-file", str(key_file)]) == code
        output = capsys.readouterr()
        assert ("is encrypted" in output.err) is (code == 2)
        assert "sesame" not in output.err + output.out
    path = next(directory.glob("tnats/streams/*/*.seg"))
    sound = path.read_bytes()
    assert b"payload" not in sound
    flipped = bytearray(sound)
    flipped[8192 + 60] ^= 4
    path.write_bytes(flipped)
    monkeypatch.setenv("TNATS_STORE_KEY", "new")
    monkeypatch.setenv("TNATS_STORE_PREV_KEY", "sesame")
    assert main(["check", str(directory)]) == 1
    assert main(["check", "--repair", str(directory)]) == 0
    assert path.read_bytes() == sound


def test_refusals(tmp_path: Path, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No directory, no store in it, a store of nats-server: 2, and one line that says which."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "other/jetstream").mkdir(parents=True)
    cases = {"missing": "No such file", "empty": "holds no store", "other": "nats-server"}
    for name, text in cases.items():
        assert main(["check", str(tmp_path / name)]) == 2
        output = capsys.readouterr()
        assert text in output.err
        assert output.err.count("\n") == 1
        assert output.out == ""
    assert not (tmp_path / "missing").exists()
    assert list((tmp_path / "empty").iterdir()) == []
