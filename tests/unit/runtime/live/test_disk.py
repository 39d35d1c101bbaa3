"""What the real disk does where the system gives less than usual."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import trio

from tnats.runtime.live.disk import LiveDisk


@pytest.mark.parametrize("what", ["eventfd", "pipe2"])
def test_syncs_end_without_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Where no eventfd or no pipe can be made, syncs end all the same, several at once, also when one is cancelled."""

    def refuse(*arguments: int) -> int:
        raise OSError(errno.EMFILE, "no descriptors")

    async def body() -> None:
        disk = LiveDisk()
        file = await disk.open(f"{tmp_path}/a", create=True)
        file.pwrite([b"content"], 0)
        monkeypatch.setattr(os, what, refuse)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(file.sync)
            with trio.CancelScope() as scope:
                scope.cancel()
                await file.begin_sync().wait()
        file.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file._descriptor)

    trio.run(body)
