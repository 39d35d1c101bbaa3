"""Object stores on JetStream: objects of any size, in chunks, with a digest (ADR-20). docs/client.md has the guide.

store = await create_store(JetStream(nc), StoreConfig("files"))
info = await store.put("report.pdf", data)
data = await store.get_bytes("report.pdf")
"""

from __future__ import annotations

from tnats.client.jetstream.watch import Watch
from tnats.client.object_store.config import StoreConfig
from tnats.client.object_store.info import (
    ObjectDamaged,
    ObjectExists,
    ObjectInfo,
    ObjectLink,
    ObjectMeta,
    ObjectNotFound,
)
from tnats.client.object_store.open import create_store, delete_store, open_store, store_names
from tnats.client.object_store.reader import ObjectReader
from tnats.client.object_store.store import ObjectStore, Status

__all__ = [
    "ObjectDamaged",
    "ObjectExists",
    "ObjectInfo",
    "ObjectLink",
    "ObjectMeta",
    "ObjectNotFound",
    "ObjectReader",
    "ObjectStore",
    "Status",
    "StoreConfig",
    "Watch",
    "create_store",
    "delete_store",
    "open_store",
    "store_names",
]
