"""Opt-in features beyond NATS, switched on by a consumer's metadata, so that unaware clients see plain NATS.

* `tnats.dead_letter`: a subject. A message that used up its deliveries, or was terminated, is published there
  (with headers naming stream, consumer, sequence and reason) instead of only being announced by an advisory.
* `tnats.max_ack_pending_per_subject`: a number. Of one subject at most so many messages await their ack, which
  keeps the messages of one key in order without a consumer per key.
"""

from __future__ import annotations

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.consumer.config import AckPolicy, ConsumerConfig
from tnats.subjects.tokens import is_publishable

DEAD_LETTER_KEY = "tnats.dead_letter"
ACK_PENDING_PER_SUBJECT_KEY = "tnats.max_ack_pending_per_subject"
PREFIX = "tnats."


def check_extensions(config: ConsumerConfig) -> ApiError | None:
    """Why a consumer's extensions are refused, or None. A misspelt one is an error, not a silent no-op."""
    for key, value in config.metadata.items():
        if not key.startswith(PREFIX):
            continue
        if key == DEAD_LETTER_KEY:
            if not is_publishable(value):
                return _refusal(f"{key} needs a literal subject, not {value!r}")
            if config.ack_policy == AckPolicy.NONE:
                return _refusal(f"{key} needs an ack policy")
        elif key == ACK_PENDING_PER_SUBJECT_KEY:
            if not value.isascii() or not value.isdigit() or len(value) > 9 or int(value) < 1:
                return _refusal(f"{key} needs a number of at least 1, not {value!r}")
            if config.ack_policy != AckPolicy.EXPLICIT:
                return _refusal(f"{key} needs the explicit ack policy")
        else:
            return _refusal(f"{key} is not a known extension")
    return None


def dead_letter_subject(config: ConsumerConfig) -> str:
    """Where messages without further deliveries go; empty: nowhere."""
    return config.metadata.get(DEAD_LETTER_KEY, "")


def ack_pending_per_subject_max(config: ConsumerConfig) -> int:
    """The bound on unacknowledged messages of one subject; 0: none."""
    return int(config.metadata.get(ACK_PENDING_PER_SUBJECT_KEY, "0"))


def _refusal(text: str) -> ApiError:
    return errors.CONSUMER_CREATE(err=text)
