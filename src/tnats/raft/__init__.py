"""Consensus: one replica of one group, pure. The machine is `tnats.raft.machine`; its rules are in docs/raft.md."""
