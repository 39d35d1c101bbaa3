"""What is known of an object beside its content: the record that stands for it in the stream (ADR-20, "Metadata")."""

from __future__ import annotations

import base64
import hashlib

import attrs
import orjson

from tnats.client.errors import ClientError
from tnats.client.jetstream.errors import JetStreamError
from tnats.jetstream.api.fields import (
    BOOL,
    INT,
    TEXT,
    UINT64,
    ListOf,
    MapOf,
    Record,
    decode,
    row,
    to_object,
)
from tnats.jetstream.api.json_text import DecodeError
from tnats.notation import ZERO_TIME
from tnats.records import define, frozen

CHUNK_BYTES = 128 * 1024
"""Size of the pieces of an object, unless told otherwise."""

DIGEST_PREFIX = "SHA-256="


class ObjectNotFound(JetStreamError):
    """The store has no object of this name."""


class ObjectExists(JetStreamError):
    """The new name is taken."""


class ObjectDamaged(JetStreamError):
    """What was read is not what was put: chunks are missing, or the digest differs."""


@define
class ObjectLink:
    """What a link points to: an object, or without a name a whole store."""

    bucket: str = row("bucket", TEXT, default="")
    name: str = row("name", TEXT, default="", omit=True)


@define
class ObjectOptions:
    """How an object is kept."""

    link: ObjectLink | None = row("link", Record(ObjectLink), default=None, omit=True)
    max_chunk_size: int = row("max_chunk_size", INT, default=0, omit=True)


@define
class ObjectInfo:
    """An object. `mtime_ns`: when it was put or changed last, since the Unix epoch; `nuid` names its chunks."""

    name: str = row("name", TEXT, default="")
    description: str = row("description", TEXT, default="", omit=True)
    headers: dict[str, list[str]] = row("headers", MapOf(ListOf(TEXT)), factory=dict, omit=True)
    metadata: dict[str, str] = row("metadata", MapOf(TEXT), factory=dict, omit=True)
    options: ObjectOptions | None = row("options", Record(ObjectOptions), default=None, omit=True)
    bucket: str = row("bucket", TEXT, default="")
    nuid: str = row("nuid", TEXT, default="")
    size: int = row("size", UINT64, default=0)
    mtime_text: str = row("mtime", TEXT, default=ZERO_TIME)
    """Not used, for the time of the message tells; kept for clients that want it there."""
    chunks: int = row("chunks", UINT64, default=0)
    digest: str = row("digest", TEXT, default="", omit=True)
    deleted: bool = row("deleted", BOOL, default=False, omit=True)
    mtime_ns: int | None = None

    @property
    def link(self) -> ObjectLink | None:
        """Where it points, if it is a link."""
        return None if self.options is None else self.options.link


@frozen
class ObjectMeta:
    """What a user says of an object. `chunk_bytes`: the size of its pieces."""

    name: str
    description: str = ""
    headers: dict[str, list[str]] = attrs.Factory(dict)
    metadata: dict[str, str] = attrs.Factory(dict)
    chunk_bytes: int = CHUNK_BYTES


def encode_info(info: ObjectInfo) -> bytes:
    """The record as it is published; the time of the message tells when."""
    return orjson.dumps(to_object(info))


def decode_info(data: bytes, time_ns: int, bucket: str) -> ObjectInfo:
    """The record of a message that was stored at `time_ns`. Raises JetStreamError."""
    try:
        info = decode(ObjectInfo, data, strict=False)
    except DecodeError as exc:
        raise JetStreamError(f"object store {bucket!r}: a record cannot be read: {exc}") from None
    info.mtime_ns = time_ns
    return info


def encode_name(name: str) -> str:
    """The last token of the record's subject. Raises ClientError for an empty name."""
    if not name:
        raise ClientError("an object needs a name")
    return base64.urlsafe_b64encode(name.encode()).decode()


class Digest:
    """SHA-256 over the content, as records write it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, data: bytes) -> None:
        """Take in more of the content."""
        self._hash.update(data)

    def text(self) -> str:
        """What stands in the record."""
        return DIGEST_PREFIX + base64.urlsafe_b64encode(self._hash.digest()).decode()
