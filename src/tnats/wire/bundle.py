"""Bundles: many messages in one piece of bytes, between the broker and parts of the server that handle them by the
thousand.

Behind each other, for each message: five unsigned 32-bit numbers, little-endian (size of the subject, of the reply, of
the header block, of header block and payload, of the tail), the subject, and the tail, which is how the client protocol
goes on behind the subject: "[reply ][size of header block ]size", CRLF, header block and payload, CRLF.

The hot loops of the broker and of consumers write and read it.
"""

from __future__ import annotations

HEAD_SIZE = 5 * 4
"""Bytes of the five numbers."""
