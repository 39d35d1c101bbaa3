"""Making, finding and removing buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnats.client.errors import ClientError
from tnats.client.jetstream.bucket_names import bucket_wanted, names_of_buckets
from tnats.client.kv.bucket import KeyValue
from tnats.client.kv.config import STREAM_PREFIX, WHAT, BucketConfig, stream_name, to_stream

if TYPE_CHECKING:
    from tnats.client.jetstream.context import JetStream


async def create_bucket(js: JetStream, config: BucketConfig) -> KeyValue:
    """Make a bucket; the same settings once more are no error. Raises NameInUse, ApiError."""
    stream = to_stream(config)
    await js.create_stream(stream)
    return KeyValue(js, config.name, stream)


async def update_bucket(js: JetStream, config: BucketConfig) -> KeyValue:
    """Change a bucket's settings. Raises BucketNotFound, ApiError."""
    stream = to_stream(config)
    with bucket_wanted(config.name, WHAT):
        await js.stream(stream.name).update(stream)
    return KeyValue(js, config.name, stream)


async def open_bucket(js: JetStream, name: str) -> KeyValue:
    """A bucket that is there. Raises BucketNotFound, and ClientError for a stream that is no bucket."""
    with bucket_wanted(name, WHAT):
        info = await js.stream(stream_name(name)).info()
    if info.config.max_msgs_per_subject < 1:
        raise ClientError(f"stream {info.config.name!r} is no bucket: it does not bound the messages of a subject")
    return KeyValue(js, name, info.config)


async def delete_bucket(js: JetStream, name: str) -> None:
    """Remove a bucket with all its values. Raises BucketNotFound."""
    with bucket_wanted(name, WHAT):
        await js.stream(stream_name(name)).delete()


async def bucket_names(js: JetStream) -> list[str]:
    """The names of all buckets."""
    return await names_of_buckets(js, STREAM_PREFIX)
