"""Which build of the hot modules runs: compiled or interpreted, from the same source.

TNATS_SPEEDUPS=auto (default) takes the compiled extensions where they were built and otherwise the Python source,
`require` fails where they were not built, `off` takes the source. One module object per process: callers import
a hot module by its ordinary name after `select` ran (each package with hot modules does so in `__init__`).
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from contextlib import nullcontext
from types import ModuleType

from tnats.errors import TnatsError

compiled = False
nogil = nullcontext()
"""Stand in for `cython.compiled` and `cython.nogil` in a hot module where Cython is not installed."""


def select(*names: str) -> None:
    """Import the hot modules `names` of one package in the build that TNATS_SPEEDUPS asks for.

    None of them may import a later one. They know each other's memory layout: one that was not compiled makes all run
    interpreted. Raises TnatsError for an unknown choice, and for `require` where an extension is missing.
    """
    choice = os.environ.get("TNATS_SPEEDUPS", "auto")
    if choice not in ("auto", "require", "off"):
        raise TnatsError(f"TNATS_SPEEDUPS={choice!r}: expected auto, require or off")
    missing = [name for name in names if not isinstance(_found(name).loader, importlib.machinery.ExtensionFileLoader)]
    if missing and choice == "require":
        raise TnatsError(
            f"TNATS_SPEEDUPS=require, but {missing[0]} was installed without a C compiler; "
            "install one and reinstall tnats, or unset TNATS_SPEEDUPS"
        )
    for name in names:
        if missing or choice == "off":
            load_source(name, name)
        else:
            importlib.import_module(name)


def is_compiled(module: ModuleType) -> bool:
    """Whether `module` came from a compiled extension."""
    return isinstance(module.__loader__, importlib.machinery.ExtensionFileLoader)


def load_source(name: str, as_name: str) -> ModuleType:
    """Load the Python source of `name` as module `as_name`, passing over a compiled extension beside it."""
    origin = _found(name).origin
    assert origin is not None
    path = os.path.join(os.path.dirname(origin), name.rpartition(".")[2] + ".py")
    loader = importlib.machinery.SourceFileLoader(as_name, path)
    source_spec = importlib.util.spec_from_loader(as_name, loader)
    assert source_spec is not None
    module = importlib.util.module_from_spec(source_spec)
    sys.modules[as_name] = module
    loader.exec_module(module)
    return module


def _found(name: str) -> importlib.machinery.ModuleSpec:
    """Where the module `name` would be imported from."""
    package, _, leaf = name.rpartition(".")
    spec = importlib.machinery.PathFinder.find_spec(leaf, importlib.import_module(package).__path__)
    if spec is None or spec.origin is None:
        raise TnatsError(f"{name} is not installed")
    return spec
