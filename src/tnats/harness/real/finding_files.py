"""Where scenario files are found: in the directory `jepsen/` of a clone, or another one by `--dir`."""

from __future__ import annotations

from pathlib import Path

from tnats.harness.findings import Finding, FindingError, parse_finding


def load_findings(given: str | None) -> list[Finding]:
    """Every finding, by file name; of the directory `given`, or of the clone. Raises FindingError."""
    directory = find_directory(given)
    findings = [load(path) for path in sorted(directory.glob("*.toml"))]
    if not findings:
        raise FindingError(f"{directory}: no scenario files in it")
    return findings


def find_directory(given: str | None) -> Path:
    """The given directory, else `jepsen/` here or in a parent, else in the clone that this package runs from."""
    if given is not None:
        directory = Path(given)
        if not directory.is_dir():
            raise FindingError(f"--dir {given}: no such directory")
        return directory
    for place in (Path.cwd(), *Path.cwd().parents, *Path(__file__).parents):
        if any((place / "jepsen").glob("f*.toml")):
            return place / "jepsen"
    raise FindingError("no directory jepsen/ with scenario files here or above; run this in a clone or give --dir")


def load(path: Path) -> Finding:
    """One scenario file. Raises FindingError, naming it."""
    try:
        return parse_finding(path.read_text())
    except OSError as exc:
        raise FindingError(f"{path}: {exc.strerror}") from None
    except UnicodeDecodeError as exc:
        raise FindingError(f"{path}: not UTF-8 at byte {exc.start}") from None
    except FindingError as exc:
        raise FindingError(f"{path}: {exc}") from None
