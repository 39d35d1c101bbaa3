"""Names of buckets, and of the streams behind them: the same for values and for objects (ADR-8, ADR-20)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tnats.client.errors import ClientError
from tnats.client.jetstream.errors import BucketNotFound, StreamNotFound

if TYPE_CHECKING:
    from tnats.client.jetstream.context import JetStream

_BUCKET = re.compile(r"[A-Za-z0-9_-]+")


def bucket_stream(prefix: str, bucket: str, what: str) -> str:
    """The stream behind a bucket. Raises ClientError for what cannot be the name of one, as `what` says."""
    if not _BUCKET.fullmatch(bucket):
        raise ClientError(f"{what} {bucket!r}: a name has only letters, digits, _ and -")
    return prefix + bucket


@contextmanager
def bucket_wanted(bucket: str, what: str) -> Iterator[None]:
    """Around calls to the stream behind a bucket: raises BucketNotFound in place of StreamNotFound."""
    try:
        yield
    except StreamNotFound as exc:
        raise BucketNotFound(what, bucket) from exc


async def names_of_buckets(js: JetStream, prefix: str) -> list[str]:
    """The names of all buckets whose streams begin with `prefix`."""
    names = await js.stream_names()
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
