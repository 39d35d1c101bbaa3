"""C8: a key behaves like one register.

Property: the history of each key (put, create, update, delete, get at the leader) is linearizable, revisions
included. Cost: O(n log n) a key by the fast path; else a search bounded in steps, whose "unknown" is not "ok".
Source: the contract's K9; `tnats.harness.registers` has the method.
"""

from __future__ import annotations

from tnats.harness.checkers.evidence import SAMPLES_MAX, Evidence, Result
from tnats.harness.linearizability import Verdict
from tnats.harness.registers import calls_by_key, judge

TITLE = "every key is linearizable"


def check(evidence: Evidence) -> Result:
    texts: dict[Verdict, list[str]] = {"ok": [], "violated": [], "unknown": []}
    keyed = calls_by_key(evidence.history)
    for key, calls in keyed.items():
        verdict, text = judge(calls)
        texts[verdict].append(f"{key}: {text}")
    figures = {
        "keys": len(keyed),
        "calls": sum(len(calls) for calls in keyed.values()),
        "violations": len(texts["violated"]),
        "unknown": len(texts["unknown"]),
    }
    verdict = "violated" if texts["violated"] else "unknown" if texts["unknown"] else "ok"
    return Result("C8", TITLE, verdict, tuple((texts["violated"] + texts["unknown"])[:SAMPLES_MAX]), figures)
