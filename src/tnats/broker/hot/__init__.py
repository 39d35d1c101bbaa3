"""The hot loop: scan what a connection sent, route it, put it into the buffers of those who get it.

Everything that happens once per message and nothing else. One source, two builds: Cython compiles each module with the
C types of the `.pxd` beside it, or it runs as the ordinary Python that it is. Both give the same bytes and states.

    inbound -> publisher -> plan -> outbound
                                 -> message

`Inbound.feed` finds the operations in what one read brought. A publish is the `Publisher`'s: it knows the subject's
`Plan`, which delivers to its targets: into the `Outbound` of a connection, or the `Inbox` of an internal client. At
the end of the pass `Exchange.settle` writes.
"""

from __future__ import annotations

from tnats import speedups

speedups.select(
    "tnats.broker.hot.outbound",
    "tnats.broker.hot.message",
    "tnats.broker.hot.plan",
    "tnats.broker.hot.publisher",
    "tnats.broker.hot.inbound",
)
