"""Arrows between packages point inward only, and third parties stay where they belong."""

from __future__ import annotations

import sys

import pytest
from tests.tidy.sources import Import, Source, imports, sources, within

EVERYONE = (
    "tnats.errors",
    "tnats.limits",
    "tnats.ids",
    "tnats.moments",
    "tnats.notation",
    "tnats.records",
    "tnats.speedups",
    "attrs",
)
"""What every package may import, apart from the standard library; `from tnats import ...` gives version numbers."""

API = "tnats.runtime.api"
PURE = ("tnats.wire", "tnats.subjects", "tnats.auth", "tnats.raft")
JETSTREAM_RECORDS = (
    "tnats.jetstream.api.errors",
    "tnats.jetstream.api.fields",
    "tnats.jetstream.api.json_text",
    "tnats.jetstream.api.messages",
    "tnats.jetstream.stream.config",
    "tnats.jetstream.consumer.config",
    "tnats.jetstream.consumer.requests",
)
"""The records of the JetStream API and its errors: pure, and spelt once for server and client."""

ALLOWED: dict[str, tuple[str, ...]] = {
    "tnats.errors": (),
    "tnats.limits": (),
    "tnats.ids": ("nacl",),
    "tnats.moments": (),
    "tnats.notation": (),
    "tnats.records": (),
    "tnats.speedups": (),
    "tnats.timers": (API, "trio"),
    "tnats.memory": (),
    "tnats.wire": ("crc32c", "h11", "wsproto", "orjson"),
    "tnats.subjects": ("crc32c",),
    "tnats.raft": ("crc32c",),
    "tnats.auth": ("tnats.subjects", "nacl", "bcrypt", "cryptography", "orjson"),
    "tnats.runtime.api": ("trio",),
    "tnats.runtime.disk_errors": (API,),
    "tnats.runtime.live": (API, "tnats.runtime.live", "tnats.runtime.disk_errors", "trio", "outcome", "psutil"),
    "tnats.runtime.live.sync.hot": ("tnats.runtime.live.sync.calls", "cython"),
    "tnats.runtime.sim": (API, "tnats.runtime.sim", "tnats.runtime.disk_errors", "trio"),
    "tnats.storage": (API, "trio", "crc32c", "cryptography", "zstandard"),
    "tnats.broker": ("tnats.wire", "tnats.subjects", "tnats.auth", "tnats.timers", API, "trio", "orjson"),
    "tnats.broker.hot": ("tnats.broker", "tnats.memory", "tnats.subjects", "tnats.wire.bundle", API, "cython"),
    "tnats.storage.hot": ("tnats.storage", "crc32c", "cython"),
    "tnats.accounts": ("tnats.broker", "tnats.wire", "tnats.subjects", "tnats.auth", API, "trio", "orjson"),
    "tnats.cluster": (
        "tnats.broker",
        "tnats.accounts",
        "tnats.wire",
        "tnats.subjects",
        "tnats.auth",
        API,
        "trio",
        "orjson",
    ),
    "tnats.replication": ("tnats.raft", "tnats.storage", "tnats.broker.ports", API, "trio", "crc32c"),
    "tnats.jetstream": (
        "tnats.replication",
        "tnats.storage",
        "tnats.accounts",
        "tnats.broker.ports",
        "tnats.wire.bundle",
        "tnats.wire.documents",
        "tnats.wire.headers",
        "tnats.subjects",
        "tnats.auth",
        "tnats.timers",
        API,
        "trio",
        "cattrs",
        "orjson",
        "croniter",
        "tzdata",
    ),
    "tnats.jetstream.backup.s2": ("tnats.jetstream.backup.varint", "tnats.storage.hot", "cramjam"),
    "tnats.jetstream.consumer.hot": (
        "tnats.jetstream.consumer",
        "tnats.memory",
        "tnats.storage",
        "tnats.wire.bundle",
        "cython",
    ),
    "tnats.edges": (
        "tnats.broker",
        "tnats.accounts",
        "tnats.jetstream.ports",
        "tnats.wire",
        "tnats.subjects",
        "tnats.auth",
        API,
        "trio",
        "h11",
        "wsproto",
        "orjson",
    ),
    "tnats.client": ("tnats.wire", "tnats.subjects", "tnats.auth", API, "trio", "orjson"),
    "tnats.client.jetstream": ("tnats.client", *PURE, *JETSTREAM_RECORDS, API, "trio", "orjson"),
    "tnats.client.kv": ("tnats.client", *JETSTREAM_RECORDS, API, "trio"),
    "tnats.client.object_store": ("tnats.client", *JETSTREAM_RECORDS, API, "trio", "orjson"),
    # For people: `connect()` without a runtime takes the live one.
    "tnats.client.connect": ("tnats.client", "tnats.wire", "tnats.auth", API, "tnats.runtime.live", "trio"),
    "tnats.server": (
        *PURE,
        API,
        "tnats.storage",
        "tnats.broker",
        "tnats.accounts",
        "tnats.cluster",
        "tnats.replication",
        "tnats.jetstream",
        "tnats.edges",
        "tnats.client",
        "trio",
        "orjson",
        "nacl",
        "bcrypt",
    ),
    "tnats.testing": (
        "tnats.server",
        "tnats.client",
        "tnats.jetstream",
        API,
        "tnats.runtime.live",
        "tnats.runtime.sim",
        "trio",
        "pytest",
    ),
    "tnats.harness": (
        "tnats.server",
        "tnats.client",
        "tnats.jetstream",
        "tnats.testing",
        "tnats.runtime",
        "tnats.wire",
        "tnats.storage",
        "tnats.raft",
        "tnats.subjects",
        "trio",
        "pyfuse3",
        "jinja2",
        "rich",
        "orjson",
    ),
    "tnats.cli": ("tnats", "trio", "click", "rich", "orjson", "nacl", "bcrypt"),
    "tnats.__main__": ("tnats.cli", "tnats.server"),
}
"""Package -> what it may import besides itself and EVERYONE. A dotted entry allows that module and all below it."""


def package_of(module: str) -> str:
    """The row of the table for `module`: the longest entry that it lies under."""
    found = [package for package in ALLOWED if within(module, package)]
    return max(found, key=len) if found else ""


def targets(found: Import) -> list[str]:
    """The modules that an import reaches: `from package import name` may name a module of the package."""
    if within(found.module, "tnats") and found.names:
        submodules = {source.module for source in sources()}
        return [
            f"{found.module}.{name}" if f"{found.module}.{name}" in submodules else found.module for name in found.names
        ]
    return [found.module]


def forbidden(source: Source) -> list[str]:
    """Each import of `source` that its row does not allow."""
    own = package_of(source.module)
    allowed = (*EVERYONE, *ALLOWED[own], own)
    wrong = []
    for found in imports(source):
        for target in targets(found):
            top = target.partition(".")[0]
            if top in sys.stdlib_module_names or target == "tnats":
                continue
            if not any(within(target, entry) for entry in allowed):
                wrong.append(f"{source.place(found.node)}: {source.module} imports {target}")
    return wrong


def test_every_module_has_a_row() -> None:
    """The table covers every module, so that a new package is thought about."""
    assert [source.module for source in sources() if source.module != "tnats" and not package_of(source.module)] == [
        source.module for source in sources() if source.module in ("tnats.runtime",)
    ]


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_follow_the_table(package: str) -> None:
    """No module imports what its row in the table does not name."""
    wrong = [line for source in sources() if package_of(source.module) == package for line in forbidden(source)]
    assert wrong == []


def test_the_table_has_no_circles() -> None:
    """The rows, read as arrows between packages, can be put in one order from inside to outside."""
    rows_of_modules = (
        "tnats.broker.hot",
        "tnats.runtime.live.sync.hot",
        "tnats.storage.hot",
        "tnats.jetstream.consumer.hot",
        "tnats.client.connect",
    )
    packages = [package for package in ALLOWED if package not in ("tnats.cli", "tnats.__main__", *rows_of_modules)]
    order: list[str] = []
    while len(order) < len(packages):
        ready = [
            package
            for package in packages
            if package not in order
            and all(
                other in order or other == package or within(other, package)
                for allowed in ALLOWED[package]
                for other in packages
                if within(allowed, other)
            )
        ]
        assert ready, f"circle among {sorted(set(packages) - set(order))}"
        order += ready
