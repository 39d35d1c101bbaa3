"""From the text of a configuration file to `Options`, pure: files are read by the callable passed in."""

from __future__ import annotations

from collections.abc import Mapping

from tnats.errors import TnatsError
from tnats.server.config.digest import config_digest
from tnats.server.config.options import Options
from tnats.server.config.parser import Node, Read, parse
from tnats.server.config.problems import ConfigError, Position, Problem
from tnats.server.config.table import Reading, Refused, read_section


def read_options(path: str, *, read: Read, env: Mapping[str, str]) -> Options:
    """The options of the configuration file at `path`.

    Raises `ConfigError` with all problems at once, including the warnings. Where there are only warnings, the options
    hold them (`Options.warnings`): a start prints them and goes on, a check (`-t`) fails with them.
    """
    try:
        text = read(path)
    except OSError as error:
        raise ConfigError([Problem(f"open {path}: {(error.strerror or str(error)).lower()}")]) from error
    except TnatsError as error:
        raise ConfigError([Problem(str(error))]) from error
    root = parse(text, path, read=read, env=env)
    reading = Reading()
    if not root:
        reading.warn(f"{path}: config has no values or is empty", None)
    try:
        options = read_section(reading, Options, Node(root, Position(path, 1, 1)), "the configuration")
    except Refused as refused:
        raise ConfigError([*reading.errors, Problem(refused.text, refused.position)], reading.warnings) from refused
    options.cross_check(reading)
    if reading.errors:
        raise ConfigError(reading.errors, reading.warnings)
    options.config_file = path
    options.config_digest = config_digest(root)
    options.given = reading.given
    options.warnings = tuple(reading.warnings)
    return options
