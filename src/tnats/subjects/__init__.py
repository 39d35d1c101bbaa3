"""Subjects: what is valid, what matches, who is interested, and what a subject maps to. Pure."""
