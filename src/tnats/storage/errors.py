"""What storage refuses, as a small closed set."""

from __future__ import annotations

import errno

from tnats.errors import TnatsError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Reasons that pass: the store refuses for now."""


class StorageError(TnatsError):
    """A store cannot do what was asked. One line: which store, why, what to do."""


class StoreFrozen(StorageError):
    """A write or sync failed. The store answers reads and takes no writes until the server is restarted."""


class StoreFull(StorageError):
    """No space. The store takes writes again once there is room."""

    may_have_written = False
    """Whether some of it may be found at the next start all the same: a write got part of the way."""


class StoreBusy(StorageError):
    """Too many bytes wait to be written. Nothing was stored; try again."""


class LogRemoved(StorageError):
    """The log is being removed, or is: nothing may follow its removal in the journal."""


class StoreRefused(StorageError):
    """A directory or file that this server must not touch: another version's, another store's, another program's."""


class DataDamaged(StorageError):
    """The bytes of this entry or message cannot be read. Its index or sequence was used and is not given out again."""
