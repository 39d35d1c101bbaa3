"""What makes a consumer's configuration valid on its stream: defaults, checks, and what an update may change.

Like `stream.rules`: small checks in order over a copy that they complete; texts are nats-server's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import attrs

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.fields import Update, rows_of
from tnats.jetstream.api.levels import with_required_level
from tnats.jetstream.api.subjects import NAME_FORBIDDEN, is_text
from tnats.jetstream.consumer.config import (
    ACK_WAIT_NS,
    FLOW_CONTROL_HEARTBEAT_NS,
    GROUP_NAME_CHARS_MAX,
    HEARTBEAT_NS_MIN,
    INACTIVE_THRESHOLD_NS,
    MAX_ACK_PENDING,
    MAX_EXPIRES_NS_MIN,
    MAX_WAITING,
    PINNED_TTL_NS,
    AckPolicy,
    Action,
    ConsumerConfig,
    DeliverPolicy,
    PriorityPolicy,
)
from tnats.jetstream.consumer.extensions import check_extensions
from tnats.jetstream.stream.config import Retention, StreamConfig
from tnats.limits import ASSET_DESCRIPTION_BYTES_MAX, ASSET_METADATA_BYTES_MAX, ASSET_NAME_BYTES_MAX
from tnats.notation import format_duration
from tnats.records import define, frozen
from tnats.subjects.subject_set import SubjectSet
from tnats.subjects.tokens import has_wildcard, is_publishable, is_valid_subject, subjects_overlap

_GROUP_NAME = re.compile(rf"[a-zA-Z0-9/_=-]{{1,{GROUP_NAME_CHARS_MAX}}}")


@frozen
class Surroundings:
    """What the rules must know of the stream, its other consumers and the account."""

    stream: StreamConfig
    others: Sequence[ConsumerConfig] = ()
    """The configurations of the stream's other consumers; only a work queue looks at them."""
    is_clustered: bool = False
    max_ack_pending: int = 0
    """The server's or account's bound; 0 or -1: none."""
    max_batch: int = 0
    """The server's bound on `max_batch`; 0: none."""
    is_bound: bool = False
    """Somebody listens on the deliver subject of the consumer as it is."""
    others_count: int = attrs.field(default=attrs.Factory(lambda self: len(self.others), takes_self=True))


@define
class _Check:
    config: ConsumerConfig
    around: Surroundings
    is_pedantic: bool


def check(config: ConsumerConfig, around: Surroundings, *, pedantic: bool = False) -> ConsumerConfig | ApiError:
    """The configuration with its defaults filled in, ready to be stored; or why it is refused."""
    work = _Check(attrs.evolve(config), around, pedantic)
    for step in _STEPS:
        error = step(work)
        if error is not None:
            return error
    work.config.metadata = with_required_level(work.config)
    return work.config


def check_create(
    config: ConsumerConfig,
    around: Surroundings,
    *,
    old: ConsumerConfig | None = None,
    action: Action = Action.CREATE_OR_UPDATE,
    pedantic: bool = False,
) -> ConsumerConfig | ApiError:
    """What a create request leads to: a new consumer, or an update of the existing one (`old`)."""
    if old is not None and action != Action.CREATE and not config.durable_name:
        # A client that names it by `name` alone does not mean it to vanish when it is inactive.
        config = attrs.evolve(config, durable_name=old.durable_name)
    checked = check(config, around, pedantic=pedantic)
    if isinstance(checked, ApiError):
        return checked
    if old is not None:
        if action == Action.CREATE and old != checked:
            return errors.CONSUMER_ALREADY_EXISTS()
        if _shares_work(checked, around):
            return errors.CONSUMER_WQ_CONSUMER_NOT_UNIQUE()
        if around.is_bound and old.deliver_subject != checked.deliver_subject:
            return errors.CONSUMER_NAME_EXIST()
        return _update_error(old, checked) or _keep_pause(old, checked)
    if action == Action.UPDATE:
        return errors.CONSUMER_DOES_NOT_EXIST()
    consumers_max = around.stream.max_consumers
    if 0 < consumers_max <= around.others_count:
        return errors.MAXIMUM_CONSUMERS_LIMIT()
    return _workqueue_error(checked, around) or checked


def _keep_pause(old: ConsumerConfig, new: ConsumerConfig) -> ConsumerConfig:
    # Pausing has a request of its own; an update leaves the pause as it is.
    new.pause_until_ns = old.pause_until_ns
    new.metadata = with_required_level(new)
    return new


def _check_names(work: _Check) -> ApiError | None:
    config = work.config
    for name in (config.name, config.durable_name):
        if "/" in name or "\\" in name:
            return errors.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS()
        if not is_text(name):
            return errors.CONSUMER_CREATE(err="consumer name must be UTF-8")
        if NAME_FORBIDDEN.intersection(name):
            return errors.STREAM_INVALID_CONFIG(err="consumer name can not contain '.', '*', '>', '\\', '/'")
        if len(name.encode()) > ASSET_NAME_BYTES_MAX:
            return errors.CONSUMER_NAME_TOO_LONG(max=ASSET_NAME_BYTES_MAX)
    if config.name and config.durable_name and config.name != config.durable_name:
        return errors.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH()
    config.name = config.name or config.durable_name
    if len(config.description.encode()) > ASSET_DESCRIPTION_BYTES_MAX:
        return errors.CONSUMER_DESCRIPTION_TOO_LONG(max=ASSET_DESCRIPTION_BYTES_MAX)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in config.metadata.items())
    if size > ASSET_METADATA_BYTES_MAX:
        return errors.CONSUMER_METADATA_LENGTH(limit=f"{ASSET_METADATA_BYTES_MAX // 1024}KB")
    return check_extensions(config)


def _check_replicas(work: _Check) -> ApiError | None:
    replicas, stream = work.config.num_replicas, work.around.stream
    if replicas < 0:
        return errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE()
    if replicas > 1 and not work.around.is_clustered:
        return errors.STREAM_REPLICAS_NOT_SUPPORTED()
    if replicas > stream.num_replicas:
        return errors.CONSUMER_REPLICAS_EXCEEDS_STREAM()
    if stream.retention != Retention.LIMITS and replicas not in (0, stream.num_replicas):
        return errors.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM()
    return None


_NOT_NEGATIVE = (
    "max_waiting",
    "max_batch",
    "max_expires_ns",
    "max_bytes",
    "idle_heartbeat_ns",
    "inactive_threshold_ns",
    "priority_timeout_ns",
)


def _check_signs(work: _Check) -> ApiError | None:
    """What is negative means none."""
    config = work.config
    for name, row in rows_of(ConsumerConfig):
        if name in _NOT_NEGATIVE and getattr(config, name) < 0:
            if work.is_pedantic:
                return errors.PEDANTIC(err=f"{row.key} must not be negative")
            setattr(config, name, 0)
    return None


def _check_waits(work: _Check) -> ApiError | None:
    config = work.config
    if config.backoff_ns:
        if work.is_pedantic and config.ack_wait_ns != config.backoff_ns[0]:
            return errors.PEDANTIC(err="first backoff value has to equal batch AckWait")
        if any(delay_ns < 0 for delay_ns in config.backoff_ns):
            return errors.CONSUMER_BACK_OFF_NEGATIVE()
        config.ack_wait_ns = config.backoff_ns[0]
    elif config.ack_wait_ns < 0:
        return errors.CONSUMER_ACK_WAIT_NEGATIVE()
    return None


def _check_flow_control_acks(work: _Check) -> ApiError | None:
    config = work.config
    if config.ack_policy != AckPolicy.FLOW_CONTROL:
        return None
    if not config.is_push:
        return errors.CONSUMER_ACK_FC_REQUIRES_PUSH()
    if work.is_pedantic:
        if not config.flow_control:
            return errors.CONSUMER_ACK_FC_REQUIRES_FC()
        if config.idle_heartbeat_ns != FLOW_CONTROL_HEARTBEAT_NS:
            return errors.STREAM_INVALID_CONFIG(err="flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending < 0:
        return errors.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING()
    if config.ack_wait_ns or config.backoff_ns:
        return errors.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT()
    if config.max_deliver > 0:
        return errors.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER()
    config.flow_control = True
    config.idle_heartbeat_ns = FLOW_CONTROL_HEARTBEAT_NS
    return None


def _check_acks(work: _Check) -> ApiError | None:
    config, stream = work.config, work.around.stream
    if work.is_pedantic and config.max_deliver < -1:
        return errors.PEDANTIC(err="max_deliver must be set to -1")
    if config.max_deliver <= 0:
        config.max_deliver = -1
    if -1 != config.max_deliver < len(config.backoff_ns):
        return errors.CONSUMER_MAX_DELIVER_BACKOFF()
    if config.ack_policy in (AckPolicy.ALL, AckPolicy.EXPLICIT) and not config.ack_wait_ns:
        config.ack_wait_ns = ACK_WAIT_NS
    if config.is_push and config.ack_policy == AckPolicy.NONE and config.max_ack_pending > 0:
        return errors.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED()
    return _check_ack_pending(work, stream.consumer_limits.max_ack_pending)


def _check_ack_pending(work: _Check, stream_bound: int) -> ApiError | None:
    config = work.config
    if config.max_ack_pending < -1:
        if work.is_pedantic:
            return errors.PEDANTIC(err="max_ack_pending must be set to -1")
        config.max_ack_pending = -1
    if config.max_ack_pending == 0:
        if stream_bound > 0:
            if work.is_pedantic:
                return errors.PEDANTIC(err="max_ack_pending must be set if it's configured in stream limits")
            config.max_ack_pending = stream_bound
        elif config.ack_policy != AckPolicy.NONE:
            bound = work.around.max_ack_pending
            config.max_ack_pending = min(MAX_ACK_PENDING, bound) if bound > 0 else MAX_ACK_PENDING
    for bound in (stream_bound, work.around.max_ack_pending):
        if 0 < bound < config.max_ack_pending:
            return errors.CONSUMER_MAX_PENDING_ACK_EXCESS(limit=bound)
    return None


def _check_push(work: _Check) -> ApiError | None:
    config, stream = work.config, work.around.stream
    if not config.is_push:
        return None
    subject = config.deliver_subject
    if has_wildcard(subject):
        return errors.CONSUMER_DELIVER_TO_WILDCARDS()
    if not is_publishable(subject):
        return errors.CONSUMER_INVALID_DELIVER_SUBJECT()
    if any(subjects_overlap(subject, captured) for captured in stream.subjects):
        return errors.CONSUMER_DELIVER_CYCLE()
    if config.max_waiting > 0:
        return errors.CONSUMER_PUSH_MAX_WAITING()
    config.max_waiting = 0
    if 0 < config.idle_heartbeat_ns < HEARTBEAT_NS_MIN:
        return errors.CONSUMER_SMALL_HEARTBEAT()
    if config.flow_control and not config.idle_heartbeat_ns:
        return errors.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS()
    if config.direct and config.durable_name:
        return errors.CONSUMER_DIRECT_REQUIRES_EPHEMERAL()
    return None


def _check_pull(work: _Check) -> ApiError | None:
    config = work.config
    if config.is_push:
        return None
    if config.rate_limit_bps:
        return errors.CONSUMER_PULL_WITH_RATE_LIMIT()
    if config.idle_heartbeat_ns:
        return errors.CONSUMER_HB_REQUIRES_PUSH()
    if config.flow_control:
        return errors.CONSUMER_FC_REQUIRES_PUSH()
    if config.direct:
        return errors.CONSUMER_DIRECT_REQUIRES_PUSH()
    if 0 < config.max_expires_ns < MAX_EXPIRES_NS_MIN:
        return errors.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL()
    if 0 < work.around.max_batch < config.max_batch:
        return errors.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED(limit=work.around.max_batch)
    config.max_waiting = config.max_waiting or MAX_WAITING
    config.max_batch = config.max_batch or max(work.around.max_batch, 0)
    return None


def _check_start(work: _Check) -> ApiError | None:
    config = work.config
    policy, has_seq, has_time = config.deliver_policy, bool(config.opt_start_seq), config.opt_start_time_ns is not None
    name = {
        DeliverPolicy.ALL: "deliver all",
        DeliverPolicy.LAST: "deliver last",
        DeliverPolicy.NEW: "deliver new",
        DeliverPolicy.LAST_PER_SUBJECT: "deliver last per subject",
        DeliverPolicy.BY_START_SEQUENCE: "deliver by start sequence",
        DeliverPolicy.BY_START_TIME: "deliver by start time",
    }[policy]
    text = None
    if policy == DeliverPolicy.BY_START_SEQUENCE:
        if not has_seq:
            text = "optional start sequence is not set"
        elif has_time:
            text = "optional start time is also set"
    elif policy == DeliverPolicy.BY_START_TIME:
        if not has_time:
            text = "optional start time is not set"
        elif has_seq:
            text = "optional start start sequence is also set"
    elif has_seq:
        text = "optional start sequence is also set"
    elif has_time:
        text = "optional start time is also set"
    elif policy == DeliverPolicy.LAST_PER_SUBJECT and not config.filters():
        text = "optional filter subject is not set"
    return (
        None if text is None else errors.CONSUMER_INVALID_POLICY(err=f"consumer delivery policy is {name}, but {text}")
    )


def _check_filters(work: _Check) -> ApiError | None:
    config = work.config
    if config.filter_subject and config.filter_subjects:
        return errors.CONSUMER_DUPLICATE_FILTER_SUBJECTS()
    if any(not subject for subject in config.filter_subjects):
        return errors.CONSUMER_EMPTY_FILTER()
    before = SubjectSet()
    for subject in config.filters():
        if not is_valid_subject(subject):
            return errors.STREAM_INVALID_CONFIG(err="invalid subject")
        if any(before.covering(subject)) or any(before.covered(subject)):
            return errors.CONSUMER_OVERLAPPING_SUBJECT_FILTERS()
        before.add(subject)
    return None


def _check_sampling(work: _Check) -> ApiError | None:
    text = work.config.sample_freq
    if not text:
        return None
    digits = text.removesuffix("%")
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", digits):
        return errors.CONSUMER_INVALID_SAMPLING(err=f'strconv.Atoi: parsing "{digits}": invalid syntax')
    if int(digits) < 0:
        return errors.CONSUMER_INVALID_SAMPLING(err="<nil>")
    return None


def _check_priority(work: _Check) -> ApiError | None:
    config = work.config
    if config.priority_policy == PriorityPolicy.NONE:
        if config.priority_groups:
            return errors.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE()
        if config.priority_timeout_ns > 0:
            return errors.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE()
        return None
    if config.is_push:
        return errors.CONSUMER_PUSH_WITH_PRIORITY_GROUP()
    if not config.priority_groups:
        return errors.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP()
    for group in config.priority_groups:
        error = check_group_name(group)
        if error is not None:
            return error
    if config.priority_policy == PriorityPolicy.PINNED_CLIENT and config.priority_timeout_ns <= 0:
        config.priority_timeout_ns = PINNED_TTL_NS
    return None


def check_group_name(group: str) -> ApiError | None:
    """Why this cannot name a priority group, or None."""
    if not group:
        return errors.CONSUMER_EMPTY_GROUP_NAME()
    return None if _GROUP_NAME.fullmatch(group) else errors.CONSUMER_INVALID_GROUP_NAME()


def _check_inactivity(work: _Check) -> ApiError | None:
    config, bound_ns = work.config, work.around.stream.consumer_limits.inactive_threshold_ns
    if not config.inactive_threshold_ns:
        if bound_ns:
            if work.is_pedantic:
                return errors.PEDANTIC(err="inactive_threshold must be set if it's configured in stream limits")
            config.inactive_threshold_ns = bound_ns
        elif not config.durable_name:
            config.inactive_threshold_ns = INACTIVE_THRESHOLD_NS
    if 0 < bound_ns < config.inactive_threshold_ns:
        return errors.CONSUMER_INACTIVE_THRESHOLD_EXCESS(limit=format_duration(bound_ns))
    return None


def _check_workqueue(work: _Check) -> ApiError | None:
    config = work.config
    is_pull_without_acks = config.ack_policy == AckPolicy.NONE and not config.is_push
    if is_pull_without_acks and work.around.stream.retention == Retention.WORKQUEUE:
        return errors.CONSUMER_PULL_REQUIRES_ACK()
    return None


_STEPS: tuple[Callable[[_Check], ApiError | None], ...] = (
    _check_names,
    _check_replicas,
    _check_signs,
    _check_waits,
    _check_flow_control_acks,
    _check_acks,
    _check_push,
    _check_pull,
    _check_start,
    _check_filters,
    _check_sampling,
    _check_priority,
    _check_inactivity,
    _check_workqueue,
)


# ------------------------------------------------------------------ new consumers of a work queue


def _workqueue_error(config: ConsumerConfig, around: Surroundings) -> ApiError | None:
    """Why a work queue can have no such consumer."""
    if around.stream.retention != Retention.WORKQUEUE:
        return None
    if config.ack_policy not in (AckPolicy.EXPLICIT, AckPolicy.FLOW_CONTROL):
        return errors.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK()
    if config.deliver_policy != DeliverPolicy.ALL:
        return errors.CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL()
    if _shares_work(config, around):
        is_filtered = bool(config.filters())
        return errors.CONSUMER_WQ_CONSUMER_NOT_UNIQUE() if is_filtered else errors.CONSUMER_WQ_MULTIPLE_UNFILTERED()
    return None


def _shares_work(config: ConsumerConfig, around: Surroundings) -> bool:
    """Whether another consumer of a work queue wants some of the same messages."""
    wanted = SubjectSet(config.filters() or [">"])
    return any(any(wanted.overlapping(one)) for other in around.others for one in other.filters() or [">"])


# ------------------------------------------------------------------ updates

FIXED_TEXTS = {
    "deliver_policy": "deliver policy can not be updated",
    "opt_start_seq": "start sequence can not be updated",
    "opt_start_time_ns": "start time can not be updated",
    "ack_policy": "ack policy can not be updated",
    "replay_policy": "replay policy can not be updated",
    "max_waiting": "max waiting can not be updated",
    "flow_control": "flow control can not be updated",
    "idle_heartbeat_ns": "heart beats can not be updated",
    "mem_storage": "storage type can not be updated",
    "direct": "direct can not be updated",
    "sourcing": "sourcing can not be updated",
}
"""What the answer says when a field whose row is `Update.FIXED` would change."""


def _update_error(old: ConsumerConfig, new: ConsumerConfig) -> ApiError | None:
    for name, row in rows_of(ConsumerConfig):
        if row.update == Update.FIXED and getattr(old, name) != getattr(new, name):
            if name == "max_waiting" and old.is_push != new.is_push:
                continue
            return errors.CONSUMER_CREATE(err=FIXED_TEXTS[name])
    if old.is_push and not new.is_push:
        return errors.CONSUMER_CREATE(err="can not update push consumer to pull based")
    if new.is_push and not old.is_push:
        return errors.CONSUMER_CREATE(err="can not update pull consumer to push based")
    return None


# ------------------------------------------------------------------ names in the request's subject


def check_request_names(
    config: ConsumerConfig,
    *,
    subject_name: str,
    subject_filter: str = "",
    expects_durable: bool = False,
) -> ApiError | None:
    """Whether a create request agrees with its subject; completes the name from the subject.

    `subject_name`: the name token of the subject, empty for the nameless form. `expects_durable`: the old
    CONSUMER.DURABLE.CREATE subject.
    """
    if "/" in subject_name or "\\" in subject_name:
        return errors.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS()
    if expects_durable:
        if not config.durable_name:
            return errors.CONSUMER_DURABLE_NAME_NOT_SET()
        if config.durable_name != subject_name:
            return errors.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT()
    elif not subject_name:
        if config.durable_name:
            return errors.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME()
    else:
        if config.durable_name and config.durable_name != subject_name:
            return errors.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT()
        config.name = subject_name
    if subject_filter:
        if len(config.filter_subjects) > 1:
            return errors.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED()
        if config.filters() != [subject_filter]:
            return errors.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH()
    return None
