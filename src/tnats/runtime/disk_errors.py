"""One wording for disk errors, live and simulated."""

from __future__ import annotations

import errno
import os

from tnats.runtime.api import DiskError


def disk_error(verb: str, path: str, code: int) -> DiskError:
    """A DiskError whose text names the call, the path, the reason, and what to do where that is known."""
    hint = HINTS.get(code, "")
    return DiskError(f"cannot {verb} {path}: {os.strerror(code)} ({errno.errorcode.get(code, code)}){hint}", code)


HINTS = {
    errno.ENOSPC: "; free space on this file system or lower the storage limits",
    errno.EDQUOT: "; raise the quota of this user",
    errno.EMFILE: "; raise the limit of open files (ulimit -n)",
    errno.ENFILE: "; raise the system's limit of open files (fs.file-max)",
    errno.EROFS: "; the file system is read-only, perhaps after an error: look into the kernel log",
    errno.EACCES: "; give the server's user access to it",
    errno.EIO: "; the device fails: look into the kernel log",
}
