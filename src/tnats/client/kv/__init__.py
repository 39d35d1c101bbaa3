"""Key-value buckets on JetStream (ADR-8, ADR-48): docs/client.md has the guide.

kv = await create_bucket(JetStream(nc), BucketConfig("settings", history=5))
revision = await kv.put("color", b"blue")
entry = await kv.get("color")
"""

from __future__ import annotations

from tnats.client.jetstream.watch import Watch
from tnats.client.kv.bucket import KeyValue, Status
from tnats.client.kv.config import BucketConfig
from tnats.client.kv.entry import Entry, KeyDeleted, KeyExists, KeyNotFound, Operation
from tnats.client.kv.open import bucket_names, create_bucket, delete_bucket, open_bucket, update_bucket

__all__ = [
    "BucketConfig",
    "Entry",
    "KeyDeleted",
    "KeyExists",
    "KeyNotFound",
    "KeyValue",
    "Operation",
    "Status",
    "Watch",
    "bucket_names",
    "create_bucket",
    "delete_bucket",
    "open_bucket",
    "update_bucket",
]
