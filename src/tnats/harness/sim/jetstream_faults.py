"""The faults that drills of JetStream draw from, by what they strike, and what a seed can be about."""

from __future__ import annotations

from tnats.harness.sim import swarm

NETWORK_KINDS = (*swarm.NETWORK_KINDS, "N_FLOOD", "N_ADDR")
PROCESS_KINDS = ("P_KILL", "P_TERM", "P_CRASHLOOP", "P_PAUSE", "P_SLOWCPU", "P_MEM", "O_LAMEDUCK", "O_RELOAD")
CLOCK_KINDS = ("T_JUMP", "T_DRIFT", "T_STROBE")
DISK_KINDS = (
    "D_POWER",
    "D_FSYNC_EIO",
    "D_WRITE_EIO",
    "D_READ_EIO",
    "D_ENOSPC",
    "D_EROFS",
    "D_EMFILE",
    "D_EACCES",
    "D_SLOW",
    "D_DUPFILE",
)
STEADY_KINDS = (*NETWORK_KINDS, *PROCESS_KINDS, *DISK_KINDS)
"""Of drills that must know what the time is."""
EVERYTHING = "NPOTD"
DEATH = "deaths"
DEATHS = ("D_POWER", "P_KILL", "D_FSYNC_EIO", "D_FSYNC_EIO", "P_KILL", "D_POWER")
"""What ends a server, and what makes a sync fail: most of what can be lost is lost then."""
CLOCK = "T"
JUMPS_MAX = 6
FATAL_KINDS = ("D_FSYNC_EIO", "D_WRITE_EIO", "D_EMFILE", "D_EROFS", "D_EACCES", "D_READ_EIO", "P_MEM")
"""After these a store may have stopped for good until the next start."""
