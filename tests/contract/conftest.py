"""The stage fixture for all contract tests."""

from __future__ import annotations

from tests.contract.stage import stage

__all__ = ["stage"]
