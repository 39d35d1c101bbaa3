"""Fault injection in simulated worlds: plans of faults and operations, their search, shrinking, replay and report."""
