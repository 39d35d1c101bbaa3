"""What makes a stream's configuration valid: defaults, checks, and what an update may change.

`check` returns the configuration to store, or the error of the answer. It is a list of small checks run in order,
each of which may fill in defaults; the texts are nats-server's. Whatever needs other streams comes in through
`Surroundings`: functions over the account's streams, so that the rules stay pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.levels import with_required_level
from tnats.jetstream.api.subjects import is_valid_name
from tnats.jetstream.stream import sourcing_rules
from tnats.jetstream.stream.config import (
    DUPLICATE_WINDOW_NS,
    DUPLICATE_WINDOW_NS_MIN,
    MARKER_TTL_NS_MIN,
    MAX_AGE_NS_MIN,
    REPLICAS_MAX,
    Discard,
    PersistMode,
    Retention,
    Storage,
    StreamConfig,
)
from tnats.limits import (
    ASSET_DESCRIPTION_BYTES_MAX,
    ASSET_METADATA_BYTES_MAX,
    ASSET_NAME_BYTES_MAX,
    STREAM_SEQUENCE_MAX,
)
from tnats.notation import format_duration
from tnats.records import define, frozen
from tnats.subjects.subject_set import SubjectSet
from tnats.subjects.tokens import is_subset, is_valid_subject, subjects_overlap
from tnats.subjects.transforms import Transform, TransformError

JS_RESERVED = ("$JS.>", "$JSC.>", "$NRG.>")
JS_ALLOWED = "$JS.EVENT.>"
SYS_RESERVED = "$SYS.>"
SYS_ALLOWED = "$SYS.ACCOUNT.>"


def _no_overlap(subjects: Sequence[str]) -> bool:
    return False


def _no_stream(name: str) -> StreamConfig | None:
    return None


@frozen(kw_only=True)
class Surroundings:
    """What the rules must know of the server and of the account's other streams."""

    is_clustered: bool = False
    duplicate_window_ns_max: int = 0
    """The server's `limits.duplicate_window`; 0: none."""
    overlaps: Callable[[Sequence[str]], bool] = _no_overlap
    """Whether one of these subjects overlaps with another stream of the account."""
    find_stream: Callable[[str], StreamConfig | None] = _no_stream
    """Another stream of the account by name."""


@define
class _Check:
    config: StreamConfig
    around: Surroundings
    is_pedantic: bool


def invalid(text: str) -> ApiError:
    """The error of a configuration that contradicts itself."""
    return errors.STREAM_INVALID_CONFIG(err=text)


NAME_MISSING = invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
"""What an update without a valid name is told."""


def check(config: StreamConfig, around: Surroundings, *, pedantic: bool = False) -> StreamConfig | ApiError:
    """The configuration with its defaults filled in, ready to be stored; or why it is refused.

    With `pedantic`, a value that would be corrected silently is an error instead (ADR-1).
    """
    work = _Check(attrs.evolve(config), around, pedantic)
    for step in _STEPS:
        error = step(work)
        if error is not None:
            return error
    work.config.metadata = with_required_level(work.config)
    return work.config


def check_create(
    config: StreamConfig, around: Surroundings, *, pedantic: bool = False, is_restored: bool = False
) -> StreamConfig | ApiError:
    """Like `check`, for a stream that does not exist yet; one that comes back from a backup may be sealed."""
    if config.sealed and not is_restored:
        return invalid("stream configuration for create can not be sealed")
    if config.mirror_direct and config.mirror is None:
        return invalid("stream has no mirror but does have mirror direct")
    checked = check(config, around, pedantic=pedantic)
    return checked if isinstance(checked, ApiError) else _overlap_error(checked, around) or checked


def _check_name(work: _Check) -> ApiError | None:
    config = work.config
    if "/" in config.name or "\\" in config.name:
        return errors.STREAM_NAME_CONTAINS_PATH_SEPARATORS()
    if not is_valid_name(config.name):
        return NAME_MISSING
    if len(config.name.encode()) > ASSET_NAME_BYTES_MAX:
        return invalid(f"stream name is too long, maximum allowed is {ASSET_NAME_BYTES_MAX}")
    if len(config.description.encode()) > ASSET_DESCRIPTION_BYTES_MAX:
        return invalid(f"stream description is too long, maximum allowed is {ASSET_DESCRIPTION_BYTES_MAX}")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in config.metadata.items())
    if size > ASSET_METADATA_BYTES_MAX:
        return invalid(f"stream metadata exceeds maximum size of {ASSET_METADATA_BYTES_MAX} bytes")
    return None


def _check_replicas(work: _Check) -> ApiError | None:
    config = work.config
    if config.num_replicas == 0:
        config.num_replicas = 1
    if config.num_replicas > REPLICAS_MAX:
        return invalid(f"maximum replicas is {REPLICAS_MAX}")
    if config.num_replicas < 0:
        return errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE()
    if config.num_replicas > 1 and not work.around.is_clustered:
        return errors.STREAM_REPLICAS_NOT_SUPPORTED()
    if config.placement is not None:
        if config.placement.preferred:
            return invalid("preferred server not permitted in placement")
        if not config.placement.cluster and not config.placement.tags:
            config.placement = None
    return None


def _check_limits(work: _Check) -> ApiError | None:
    config = work.config
    for name in ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers"):
        value = getattr(config, name)
        if value < -1 and work.is_pedantic:
            return errors.PEDANTIC(err=f"{name} must be set to -1")
        if value <= 0:
            setattr(config, name, -1)
    if config.max_age_ns < 0:
        return invalid("max age can not be negative")
    if 0 < config.max_age_ns < MAX_AGE_NS_MIN:
        return invalid("max age needs to be >= 100ms")
    if config.first_seq > STREAM_SEQUENCE_MAX:
        return invalid(f"first sequence is too high, maximum allowed is {STREAM_SEQUENCE_MAX}")
    return None


def _check_duplicate_window(work: _Check) -> ApiError | None:
    config, server_max_ns = work.config, work.around.duplicate_window_ns_max
    if config.duplicate_window_ns == 0 and config.mirror is None and not config.sources:
        window_ns = DUPLICATE_WINDOW_NS
        if 0 < server_max_ns < window_ns:
            if work.is_pedantic:
                return errors.PEDANTIC(err="duplicate window limits are higher than current limits")
            window_ns = server_max_ns
        if 0 < config.max_age_ns < window_ns:
            if work.is_pedantic:
                return errors.PEDANTIC(err="duplicate window cannot be bigger than max age")
            window_ns = config.max_age_ns
        config.duplicate_window_ns = window_ns
    window_ns = config.duplicate_window_ns
    if window_ns < 0:
        return invalid("duplicates window can not be negative")
    if config.max_age_ns and window_ns > config.max_age_ns:
        return invalid("duplicates window can not be larger then max age")
    if 0 < server_max_ns < window_ns:
        return invalid(f"duplicates window can not be larger then server limit of {format_duration(server_max_ns)}")
    if 0 < window_ns < DUPLICATE_WINDOW_NS_MIN:
        return invalid("duplicates window needs to be >= 100ms")
    return None


def _check_removal(work: _Check) -> ApiError | None:
    config = work.config
    if config.deny_purge and config.allow_rollup_hdrs:
        return invalid("roll-ups require the purge permission")
    if config.discard_new_per_subject:
        if config.discard != Discard.NEW:
            return invalid("discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            return invalid("discard new per subject requires max msgs per subject > 0")
    return None


def _check_markers(work: _Check) -> ApiError | None:
    config = work.config
    marker_ns = config.subject_delete_marker_ttl_ns
    if marker_ns < 0:
        return invalid("subject delete marker TTL must not be negative")
    if marker_ns == 0:
        return None
    if marker_ns < MARKER_TTL_NS_MIN:
        return invalid("subject delete marker TTL must be at least 1 second")
    if config.mirror is not None:
        return invalid("subject delete markers forbidden on mirrors")
    if work.is_pedantic and not config.allow_msg_ttl:
        return invalid("subject delete marker cannot be set if message TTLs are disabled")
    config.allow_msg_ttl = True
    return _force_rollup(work, "subject delete marker cannot be set if roll-ups are disabled")


def _force_rollup(work: _Check, complaint: str) -> ApiError | None:
    config = work.config
    if config.allow_rollup_hdrs or config.sealed:
        return None
    if work.is_pedantic:
        return invalid(complaint)
    config.allow_rollup_hdrs = True
    config.deny_purge = False
    return None


def _check_counter(work: _Check) -> ApiError | None:
    config = work.config
    if not config.allow_msg_counter:
        return None
    if config.mirror is not None:
        return errors.MIRROR_WITH_COUNTERS()
    if config.discard == Discard.NEW and not config.sealed:
        return invalid("counter stream cannot use discard new")
    if config.allow_msg_ttl:
        return invalid("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        return invalid("counter stream cannot use message schedules")
    if config.retention != Retention.LIMITS:
        return invalid("counter stream can only use limits retention")
    return None


def _check_schedules(work: _Check) -> ApiError | None:
    config = work.config
    if not config.allow_msg_schedules:
        return None
    if config.mirror is not None:
        return errors.MIRROR_WITH_MSG_SCHEDULES()
    if config.sources:
        return errors.SOURCE_WITH_MSG_SCHEDULES()
    if config.discard == Discard.NEW and not config.sealed:
        return invalid("message scheduling cannot use discard new")
    return _force_rollup(work, "message scheduling cannot be set if roll-ups are disabled")


def _check_persist_mode(work: _Check) -> ApiError | None:
    config = work.config
    if config.persist_mode != PersistMode.ASYNC:
        config.persist_mode = PersistMode.UNSET
        return None
    if config.storage != Storage.FILE:
        return invalid("async persist mode is only supported on file storage")
    if config.num_replicas > 1:
        return invalid("async persist mode is not supported on replicated streams")
    if config.allow_atomic:
        return invalid("async persist mode is not supported with atomic batch publish")
    return None


def _check_batches(work: _Check) -> ApiError | None:
    config = work.config
    if config.mirror is not None:
        if config.allow_atomic:
            return errors.MIRROR_WITH_ATOMIC_PUBLISH()
        if config.allow_batched:
            return errors.MIRROR_WITH_BATCH_PUBLISH()
    return None


def _check_sourcing(work: _Check) -> ApiError | None:
    return sourcing_rules.check(work.config, work.around.find_stream, is_pedantic=work.is_pedantic)


def _check_subjects(work: _Check) -> ApiError | None:
    config = work.config
    if config.mirror is not None:
        return None
    if not config.subjects and not config.sources:
        config.subjects = [config.name]
    before = SubjectSet()
    for subject in config.subjects:
        if not subject or not is_valid_subject(subject):
            return invalid("invalid subject")
        for other in before.overlapping(subject):
            return invalid(f'subject "{other}" overlaps with "{subject}"')
        before.add(subject)
        if config.no_ack:
            continue
        if subject == ">":
            return invalid("capturing all subjects requires no-ack to be true")
        if any(subjects_overlap(subject, reserved) for reserved in JS_RESERVED) and not is_subset(subject, JS_ALLOWED):
            return invalid("subjects that overlap with jetstream api require no-ack to be true")
        if subjects_overlap(subject, SYS_RESERVED) and not is_subset(subject, SYS_ALLOWED):
            return invalid("subjects that overlap with system api require no-ack to be true")
    if ">" in config.subjects and config.num_replicas > 1:
        return invalid("capturing all subjects is not supported on replicated streams")
    return None


def _check_transform(work: _Check) -> ApiError | None:
    transform = work.config.subject_transform
    if transform is None:
        return None
    return sourcing_rules.check_transform(
        transform, errors.STREAM_TRANSFORM_INVALID_SOURCE, errors.STREAM_TRANSFORM_INVALID_DESTINATION
    )


def _check_republish(work: _Check) -> ApiError | None:
    config, republish = work.config, work.config.republish
    if republish is None:
        return None
    republish = config.republish = attrs.evolve(republish)
    if not republish.src:
        if work.is_pedantic:
            return errors.PEDANTIC(err="republish source can not be empty")
        republish.src = ">"
    if not republish.dest:
        return None
    transform = config.subject_transform
    if republish.src == republish.dest == ">" and transform is not None and transform.dest:
        republish.src = republish.dest = transform.dest
    if any(subjects_overlap(republish.dest, subject) for subject in config.subjects):
        return invalid("stream configuration for republish destination forms a cycle")
    try:
        Transform(republish.src, republish.dest)
    except TransformError:
        return invalid(
            f"stream configuration for republish with transform from '{republish.src}' to '{republish.dest}' not valid"
        )
    return None


_STEPS: tuple[Callable[[_Check], ApiError | None], ...] = (
    _check_name,
    _check_replicas,
    _check_limits,
    _check_duplicate_window,
    _check_removal,
    _check_batches,
    _check_counter,
    _check_schedules,
    _check_markers,
    _check_persist_mode,
    _check_sourcing,
    _check_subjects,
    _check_transform,
    _check_republish,
)


def _overlap_error(config: StreamConfig, around: Surroundings) -> ApiError | None:
    if around.overlaps(config.subjects):
        return errors.STREAM_SUBJECT_OVERLAP()
    return None


# ------------------------------------------------------------------ updates


def check_update(
    old: StreamConfig, wanted: StreamConfig, around: Surroundings, *, pedantic: bool = False
) -> StreamConfig | ApiError:
    """The configuration that an update leads to, or why it is refused. `around.overlaps` leaves this stream out."""
    if wanted.name != old.name:
        return errors.STREAM_MISMATCH()
    if wanted.sealed and not old.sealed:
        wanted = attrs.evolve(wanted, discard=Discard.NEW, deny_delete=True, deny_purge=True, allow_rollup_hdrs=False)
    if 0 < wanted.max_age_ns < wanted.duplicate_window_ns == old.duplicate_window_ns:
        # Lowering the age alone takes the window along.
        wanted = attrs.evolve(wanted, duplicate_window_ns=wanted.max_age_ns)
    if old.mirror is not None and wanted.mirror is not None and wanted.subjects:
        return errors.STREAM_MIRROR_NOT_UPDATABLE()
    checked = check(wanted, around, pedantic=pedantic)
    if isinstance(checked, ApiError):
        return checked
    if checked.sealed:
        checked.max_age_ns = 0
    for rule in UPDATE_RULES.values():
        error = rule(old, checked)
        if error is not None:
            return error
    if checked.num_replicas != old.num_replicas and checked.placement != old.placement:
        return errors.STREAM_MOVE_AND_SCALE()
    return _overlap_error(checked, around) or checked


def is_same(old: StreamConfig, checked: StreamConfig) -> bool:
    """Whether a checked configuration asks for the stream as it is (creating it again then succeeds)."""
    return old == checked


def _rule_retention(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    if old.retention != new.retention and Retention.WORKQUEUE in (old.retention, new.retention):
        return invalid("stream configuration update can not change retention policy to/from workqueue")
    return None


def _rule_storage(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    if old.storage != new.storage:
        return invalid("stream configuration update can not change storage type")
    return None


def _rule_mirror(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    # Removing the mirror turns the copy into a stream of its own; anything else would be another stream.
    if new.mirror is not None and old.mirror != new.mirror:
        return errors.STREAM_MIRROR_NOT_UPDATABLE()
    return None


def _rule_sealed(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    if old.sealed and not new.sealed:
        return invalid("stream configuration update can not unseal a sealed stream")
    return None


def _rule_deny_delete(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    if old.deny_delete and not new.deny_delete:
        return invalid("stream configuration update can not cancel deny message deletes")
    return None


def _rule_deny_purge(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    if old.deny_purge and not new.deny_purge:
        return invalid("stream configuration update can not cancel deny purge")
    return None


def _rule_msg_ttl(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        return invalid("message TTL status can not be disabled")
    return None


def _rule_counter(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    if old.allow_msg_counter != new.allow_msg_counter:
        return invalid("stream configuration update can not change message counter setting")
    return None


def _rule_schedules(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        return invalid("message schedules can not be disabled")
    return None


def _rule_persist_mode(old: StreamConfig, new: StreamConfig) -> ApiError | None:
    if old.persist_mode != new.persist_mode:
        return invalid("stream configuration update can not change persist mode")
    return None


UPDATE_RULES: dict[str, Callable[[StreamConfig, StreamConfig], ApiError | None]] = {
    "retention": _rule_retention,
    "storage": _rule_storage,
    "mirror": _rule_mirror,
    "sealed": _rule_sealed,
    "deny_delete": _rule_deny_delete,
    "deny_purge": _rule_deny_purge,
    "allow_msg_ttl": _rule_msg_ttl,
    "allow_msg_counter": _rule_counter,
    "allow_msg_schedules": _rule_schedules,
    "persist_mode": _rule_persist_mode,
}
"""One rule per field whose row says `Update.RULED`."""
