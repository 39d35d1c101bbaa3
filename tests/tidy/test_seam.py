"""Nothing reaches around the seam: clocks, entropy, sockets, threads and files are named in `tnats.runtime` alone."""

from __future__ import annotations

import ast

import pytest
from tests.tidy.sources import Source, annotations, dotted, imports, sources, within

MODULES_BANNED = (
    "asyncio",
    "concurrent",
    "ctypes",
    "fcntl",
    "fileinput",
    "getpass",
    "glob",
    "mmap",
    "multiprocessing",
    "os",
    "pathlib",
    "platform",
    "psutil",
    "random",
    "resource",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "socketserver",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
)

NAMES_ALLOWED = {
    "os": ("os.path", "os.fspath", "os.PathLike", "os.strerror"),
    "time": ("time.strftime", "time.gmtime", "time.strptime", "time.struct_time"),
    "random": ("random.Random",),
}
"""Of a banned module, what is no I/O, clock or chance."""

CALLS_BANNED = (
    "open",
    "input",
    "breakpoint",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.date.today",
    "date.today",
    "random.Random",
    "nacl.utils.random",
    "SigningKey.generate",
    "PrivateKey.generate",
    "nacl.signing.SigningKey.generate",
    "nacl.public.PrivateKey.generate",
    "bcrypt.gensalt",
    "id",
)

TRIO_BANNED = (
    "sleep",
    "sleep_until",
    "to_thread",
    "from_thread",
    "socket",
    "open_file",
    "wrap_file",
    "Path",
    "Process",
    "run_process",
    "SocketStream",
    "SocketListener",
    "SSLStream",
    "open_tcp_stream",
    "open_tcp_listeners",
    "serve_tcp",
    "open_unix_socket",
    "open_signal_receiver",
    "current_time",
    "move_on_after",
    "move_on_at",
    "fail_after",
    "fail_at",
)

EXCEPTIONS: dict[str, dict[str, str]] = {
    # module or package -> {banned name: reason}
    "tnats.speedups": {
        "os": "the place of a module beside its extension",
        "os.environ": "TNATS_SPEEDUPS chooses the build when a package with a hot module is imported",
    },
    "tnats.cli.reply": {"trio.run_process": "`tnats reply --command` answers with the output of a program"},
    "tnats.harness.catalogue": {"pathlib": "finds scenario files, outside of any simulation"},
    "tnats.harness.sim.corpus": {"pathlib": "names the files of the corpus, outside of any simulation"},
    "tnats.harness.sim.export": {"pathlib": "where a run is written to"},
    "tnats.harness.sim.farm": {
        "pathlib": "names the directory of scenario files for its workers",
        "selectors": "waits for worker processes",
        "subprocess": "workers are processes of their own",
        "time": "rates and budgets are about real time",
    },
    "tnats.harness.sim.files": {"pathlib": "scenario files, corpus and results on the real disk"},
    "tnats.harness.simulate": {"os.environ": "TNATS_SIM_SEED chooses one seed of a test"},
    "tnats.cli.sim": {"pathlib": "names scenario and result files"},
    "tnats.harness.determinism": {
        "os": "the environment of the processes it compares",
        "pathlib": "the traces of the processes it compares",
        "subprocess": "the gate is about two real processes",
        "tempfile": "the traces of the processes it compares",
    },
    "tnats.testing.embedded": {
        "pathlib": "names the private folder of the server",
        "tempfile": "the private folder of the server",
        "threading": "the server runs beside the caller's code, whatever that runs on",
    },
    "tnats.harness.real": {"*": "real processes on the real machine: nothing of it ever runs in a simulation"},
}
"""Where a banned name ("*": any) may stand after all, and why."""

PURE = ("tnats.wire", "tnats.subjects", "tnats.auth", "tnats.raft")


def outside_sources() -> list[Source]:
    """All modules but the two runtimes (the seam's types may use trio's cancel scopes like any engine)."""
    return [source for source in sources() if not within(source.module, "tnats.runtime")]


def excused(module: str, name: str) -> bool:
    """Whether `name`, or what it is an attribute of, is excepted in `module`."""
    return any(
        within(module, place) and any(excepted == "*" or within(name, excepted) for excepted in names)
        for place, names in EXCEPTIONS.items()
    )


def leaks(source: Source) -> list[str]:
    """Every banned name that `source` uses without an exception."""
    found: list[str] = []
    in_annotations = annotations(source.tree)
    for each in imports(source):
        top = each.module.partition(".")[0]
        if top in MODULES_BANNED and not excused(source.module, top):
            names = [f"{each.module}.{name}" for name in each.names]
            if names and not all(name.startswith(NAMES_ALLOWED.get(top, ("-",))) for name in names):
                found.append(f"{source.place(each.node)}: from {each.module} import {', '.join(each.names)}")
            elif not names and top not in NAMES_ALLOWED:
                found.append(f"{source.place(each.node)}: import {each.module}")
        if each.module == "trio":
            found += [
                f"{source.place(each.node)}: from trio import {name}"
                for name in each.names
                if name in TRIO_BANNED and not excused(source.module, f"trio.{name}")
            ]
    for node in ast.walk(source.tree):
        name = dotted(node)
        top, _, rest = name.partition(".")
        if isinstance(node, ast.Attribute) and top in NAMES_ALLOWED and not excused(source.module, name):
            if not any(within(name, allowed) or within(allowed, name) for allowed in NAMES_ALLOWED[top]):
                found.append(f"{source.place(node)}: {name}")
        elif top == "trio" and rest.partition(".")[0] in TRIO_BANNED and not excused(source.module, name):
            found.append(f"{source.place(node)}: {name}")
        if isinstance(node, ast.Call) and node not in in_annotations:
            called = dotted(node.func)
            if called in CALLS_BANNED and not excused(source.module, called):
                found.append(f"{source.place(node)}: {called}()")
    return found


@pytest.mark.parametrize("source", outside_sources(), ids=lambda source: source.module)
def test_the_seam_does_not_leak(source: Source) -> None:
    """Outside of the runtimes nothing names a clock, entropy, socket, thread or file, but for listed exceptions."""
    assert leaks(source) == []


@pytest.mark.parametrize(
    "source",
    [s for s in sources() if s.module.startswith(PURE) or s.module.endswith(".machine")],
    ids=lambda source: source.module,
)
def test_pure_parts_are_pure(source: Source) -> None:
    """Machines await nothing and know neither trio nor the runtime."""
    assert [source.place(node) for node in ast.walk(source.tree) if isinstance(node, ast.Await | ast.AsyncFor)] == []
    assert [
        f"{source.place(each.node)}: {each.module}"
        for each in imports(source)
        if (each.module == "trio" or within(each.module, "tnats.runtime")) and not each.typing_only
    ] == []


def test_async_generators_are_context_managers() -> None:
    """Async generators stand only under asynccontextmanager: others are abandoned when the collector pleases."""
    wrong = []
    for source in sources():
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.AsyncFunctionDef):
                continue
            own = [child for statement in node.body for child in walk_own(statement)]
            yields = any(isinstance(child, ast.Yield | ast.YieldFrom) for child in own)
            managed = any(dotted(decorator).endswith("asynccontextmanager") for decorator in node.decorator_list)
            if yields and not managed:
                wrong.append(f"{source.place(node)}: {node.name}")
    assert wrong == []


def walk_own(node: ast.AST) -> list[ast.AST]:
    """`node` and what lies in it, without nested functions."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return []
    return [node, *(found for child in ast.iter_child_nodes(node) for found in walk_own(child))]


def test_every_exception_is_needed() -> None:
    """An exception that nothing makes use of any more is taken off the list."""
    unneeded = []
    for place, names in EXCEPTIONS.items():
        for name in names:
            if name == "*":
                continue
            used = any(
                each.module.partition(".")[0] == name
                for source in sources()
                if within(source.module, place)
                for each in imports(source)
            ) or any(
                within(dotted(node), name)
                for source in sources()
                if within(source.module, place)
                for node in ast.walk(source.tree)
            )
            if not used:
                unneeded.append(f"{place}: {name}")
    assert unneeded == []
