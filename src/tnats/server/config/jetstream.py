"""`jetstream`: rows and records (configuration reference, "jetstream")."""

from __future__ import annotations

from tnats.limits import MIB
from tnats.notation import quote
from tnats.records import define
from tnats.server.config.accounts import read_enabled
from tnats.server.config.features import Feature
from tnats.server.config.parser import Node
from tnats.server.config.readers import (
    ANY_DURATION_TEXT,
    BOOLEAN,
    DURATION,
    INTEGER,
    PATH,
    SIZE,
    TEXT,
    as_text,
    choice,
    integer_between,
    section,
)
from tnats.server.config.table import Reader, Reading, Refused, Section, option, read_section

DYNAMIC = -1
"""`max_memory_store`, `max_file_store`: computed from the machine."""


def _sync(reading: Reading, node: Node, key: str) -> tuple[int, bool]:
    if isinstance(node.value, str) and node.value.lower() == "always":
        return 0, True
    interval_ns: int = DURATION.read(reading, node, key)
    return interval_ns, False


def _absolute(reader: Reader) -> Reader:
    def read(reading: Reading, node: Node, key: str) -> int:
        value: int = reader.read(reading, node, key)
        if value < 0:
            raise Refused(f"Expected an absolute size for {quote(key)}, got {value}")
        return value

    return Reader(reader.kind, read)


CIPHER = choice(
    {"chacha": "chacha", "chachapoly": "chacha", "aes": "aes"}, lambda word: f"Unknown cipher type: {quote(word)}"
)


@define(eq=False, repr=False)
class BatchLimitOptions(Section):
    """0 = the built-in limits of atomic and of fast publishing."""

    max_inflight_per_stream: int = option(INTEGER, 0)
    max_inflight_total: int = option(INTEGER, 0)
    max_msgs: int = option(INTEGER, 0)
    timeout_ns: int = option(ANY_DURATION_TEXT, 0, key="timeout")


@define(eq=False, repr=False)
class JetStreamLimitOptions(Section):
    """0 = no limit."""

    max_ack_pending: int = option(INTEGER, 0)
    max_ha_assets: int = option(INTEGER, 0)
    max_request_batch: int = option(INTEGER, 0)
    duplicate_window_ns: int = option(ANY_DURATION_TEXT, 0, key="duplicate_window")
    batch: BatchLimitOptions = option(
        section(BatchLimitOptions, "batch limits"), factory=BatchLimitOptions, feature=Feature.BATCH_LIMITS
    )


@define(eq=False, repr=False)
class TpmOptions(Section):
    """Sealed keys; Windows only."""

    keys_file: str = option(TEXT, "")
    encryption_password: str = option(TEXT, "", secret=True)
    srk_password: str = option(TEXT, "", secret=True)
    pcr: int = option(INTEGER, 0)
    cipher: str = option(CIPHER, "chacha")


def _tag(reading: Reading, node: Node, key: str) -> str:
    return as_text(node, key).strip().lower()


@define(eq=False, repr=False)
class JetStreamOptions(Section):
    enabled: bool = option(BOOLEAN, False, aliases=("enable",), doc="true inside a map")
    store_dir: str = option(PATH, "", aliases=("store", "storedir"), doc="directory of the streams")
    max_memory_store: int = option(
        SIZE, DYNAMIC, aliases=("max_mem_store", "max_mem"), reloadable=True, doc="-1 = three quarters of the memory"
    )
    max_file_store: int = option(
        SIZE, DYNAMIC, aliases=("max_file",), reloadable=True, doc="-1 = three quarters of the free disk"
    )
    sync_interval: tuple[int, bool] = option(
        Reader("duration or `always`", _sync),
        (0, True),
        aliases=("sync",),
        doc="always = acknowledged when durable; a duration risks what came in the last one",
    )
    domain: str = option(TEXT, "")
    key: str = option(
        TEXT,
        "",
        aliases=("ek", "encryption_key"),
        secret=True,
        feature=Feature.STORE_ENCRYPTION,
        doc="encrypts the store",
    )
    prev_key: str = option(
        TEXT,
        "",
        aliases=("prev_ek", "prev_encryption_key"),
        secret=True,
        feature=Feature.STORE_ENCRYPTION,
        doc="what the store is encrypted under so far; it is written anew under `key`",
    )
    cipher: str = option(CIPHER, "chacha", feature=Feature.STORE_ENCRYPTION)
    strict: bool = option(BOOLEAN, True, doc="unknown fields in API requests are errors")
    unique_tag: str = option(Reader("string", _tag), "", doc="tag prefix that replicas may not share")
    extension_hint: str = option(TEXT, "")
    limits: JetStreamLimitOptions = option(
        section(JetStreamLimitOptions, "JetStreamLimits"), factory=JetStreamLimitOptions
    )
    max_outstanding_catchup: int = option(SIZE, 64 * MIB, zero_is_default=True)
    max_buffered_size: int = option(SIZE, 128 * MIB, zero_is_default=True, doc="ingest queue of a stream")
    max_buffered_msgs: int = option(INTEGER, 100_000, zero_is_default=True, doc="ingest queue of a stream")
    request_queue_limit: int = option(INTEGER, 10_000, zero_is_default=True)
    info_queue_limit: int = option(INTEGER, 0, doc="0 = as `request_queue_limit`")
    meta_compact: int = option(_absolute(INTEGER), 0, reloadable=True)
    meta_compact_size: int = option(_absolute(SIZE), 0, reloadable=True)
    meta_compact_sync: bool = option(BOOLEAN, False, reloadable=True)
    max_concurrent_io: int = option(
        integer_between(
            4, 8192, lambda key, value: f"Expected an absolute size for {quote(key)} between 4 and 8192, got {value}"
        ),
        4096,
        feature=Feature.IO_BOUND,
    )
    tpm: TpmOptions | None = option(
        section(TpmOptions, "tpm"), None, feature=Feature.WINDOWS_CERTIFICATE_STORE, doc="Windows only"
    )

    @property
    def is_off(self) -> bool:
        return not self.enabled


def _jetstream(reading: Reading, node: Node, key: str) -> JetStreamOptions:
    enabled = read_enabled(node)
    if enabled is not None:
        return JetStreamOptions(enabled=enabled)
    options = read_section(reading, JetStreamOptions, node, "JetStream")
    if "jetstream.enabled" not in reading.given:
        options.enabled = True
    for name in ("key", "cipher"):
        if not options.key and (given := reading.given.get(f"jetstream.{name}")) is not None:
            reading.warn('the store is not encrypted: "key" is empty or not given', given.position)
            break
    return options


JETSTREAM = Reader("boolean, `enabled`, `disabled`, or map", _jetstream, JetStreamOptions)
