"""Which build of a hot module runs: compiled or interpreted, from the same source.

TNATS_SPEEDUPS=auto (default) takes the compiled extension where it was built and otherwise the Python source,
`require` fails where it was not built, `off` takes the source. One module object per process: callers import
the hot module by its ordinary name after `select` ran (each package with a hot module does so in `__init__`).
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType

from tnats.errors import TnatsError

compiled = False
"""Stands in for `cython.compiled` in a hot module where Cython is not installed."""


def select(name: str) -> ModuleType:
    """Import the hot module `name` in the build that TNATS_SPEEDUPS asks for.

    Raises TnatsError for an unknown choice, and for `require` where no extension was built.
    """
    choice = os.environ.get("TNATS_SPEEDUPS", "auto")
    if choice not in ("auto", "require", "off"):
        raise TnatsError(f"TNATS_SPEEDUPS={choice!r}: expected auto, require or off")
    if name in sys.modules:
        return sys.modules[name]
    if choice == "off":
        return load_source(name, name)
    module = importlib.import_module(name)
    if choice == "require" and not is_compiled(module):
        raise TnatsError(
            f"TNATS_SPEEDUPS=require, but {name} was installed without a C compiler; "
            "install one and reinstall tnats, or unset TNATS_SPEEDUPS"
        )
    return module


def is_compiled(module: ModuleType) -> bool:
    """Whether `module` came from a compiled extension."""
    return isinstance(module.__loader__, importlib.machinery.ExtensionFileLoader)


def load_source(name: str, as_name: str) -> ModuleType:
    """Load the Python source of `name` as module `as_name`, passing over a compiled extension beside it."""
    package, _, leaf = name.rpartition(".")
    parent = importlib.import_module(package)
    spec = importlib.machinery.PathFinder.find_spec(leaf, parent.__path__)
    if spec is None or spec.origin is None:
        raise TnatsError(f"{name} is not installed")
    path = os.path.join(os.path.dirname(spec.origin), leaf + ".py")
    loader = importlib.machinery.SourceFileLoader(as_name, path)
    source_spec = importlib.util.spec_from_loader(as_name, loader)
    assert source_spec is not None
    module = importlib.util.module_from_spec(source_spec)
    sys.modules[as_name] = module
    loader.exec_module(module)
    return module
