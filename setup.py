"""Compile the hot loops where a C compiler is there; carry on without them where it is not.

Each module of HOT is an ordinary Python module with C type declarations in a `.pxd` of the same name.
The extension takes precedence at import; `tnats.speedups` chooses (see TNATS_SPEEDUPS).
TNATS_BUILD_SPEEDUPS=0 leaves compilation out, TNATS_BUILD_SPEEDUPS=require fails the build without it.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

HOT = [
    "tnats.broker.hot.outbound",
    "tnats.broker.hot.message",
    "tnats.broker.hot.plan",
    "tnats.broker.hot.publisher",
    "tnats.broker.hot.inbound",
    "tnats.runtime.live.sync.hot",
    "tnats.storage.hot",
    "tnats.jetstream.consumer.hot",
]

wanted = os.environ.get("TNATS_BUILD_SPEEDUPS", "auto")


def extensions() -> list[Extension]:
    from Cython.Build import cythonize

    modules = []
    for name in HOT:
        source = Path("src", *name.split(".")).with_suffix(".py")
        if source.exists():
            modules.append(Extension(name, [str(source)], extra_compile_args=["-O3"]))
    compiled = cythonize(
        modules,
        build_dir="build",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "annotation_typing": False,
        },
    )
    for extension in compiled:
        extension.optional = wanted != "require"  # cythonize makes extensions anew, without it
    return compiled


setup(
    ext_modules=[] if wanted == "0" else extensions(),
    options={"build_ext": {"parallel": True}},  # the C compiler takes nearly all of the time of an installation
)
