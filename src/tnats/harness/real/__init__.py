"""The half of the harness that runs real servers: processes, signals, directories, mounts.

The only place of the harness that uses the operating system beside the seam: what it does (start, kill, freeze and
damage other processes and their files) is no business of a server, so the seam has no call for it.
"""
