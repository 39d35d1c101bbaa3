"""Making, finding and removing object stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnats.client.jetstream.bucket_names import bucket_wanted, names_of_buckets
from tnats.client.object_store.config import STREAM_PREFIX, WHAT, StoreConfig, stream_name, to_stream
from tnats.client.object_store.store import ObjectStore

if TYPE_CHECKING:
    from tnats.client.jetstream.context import JetStream


async def create_store(js: JetStream, config: StoreConfig) -> ObjectStore:
    """Make a store; the same settings once more are no error. Raises NameInUse, ApiError."""
    await js.create_stream(to_stream(config))
    return ObjectStore(js, config.name)


async def open_store(js: JetStream, name: str) -> ObjectStore:
    """A store that is there. Raises BucketNotFound."""
    with bucket_wanted(name, WHAT):
        await js.stream(stream_name(name)).info()
    return ObjectStore(js, name)


async def delete_store(js: JetStream, name: str) -> None:
    """Remove a store with all its objects. Raises BucketNotFound."""
    with bucket_wanted(name, WHAT):
        await js.stream(stream_name(name)).delete()


async def store_names(js: JetStream) -> list[str]:
    """The names of all stores."""
    return await names_of_buckets(js, STREAM_PREFIX)
