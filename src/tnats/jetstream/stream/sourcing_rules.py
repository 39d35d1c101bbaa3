"""Rules for `mirror` and `sources` of a stream's configuration: names, start, filters, transforms, externals."""

from __future__ import annotations

from collections.abc import Callable

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError, ErrorKind
from tnats.jetstream.stream.config import ExternalStream, StreamConfig, StreamSource
from tnats.records import frozen
from tnats.subjects.subject_set import SubjectSet
from tnats.subjects.tokens import is_valid_literal, is_valid_subject
from tnats.subjects.transforms import Transform, TransformError

API_PREFIX = "$JS.API"
WHITE_SPACE = frozenset(" \t\r\n\f")


@frozen
class _Role:
    """Which errors a mirror and a source give for the same fault."""

    word: str
    invalid_name: ErrorKind
    filter_and_transforms: ErrorKind
    transform_source: ErrorKind
    transform_destination: ErrorKind
    filters_overlap: ErrorKind
    consumer_invalid: ErrorKind
    message_size_too_big: ErrorKind


MIRROR = _Role(
    "mirror",
    errors.MIRROR_INVALID_STREAM_NAME,
    errors.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED,
    errors.MIRROR_INVALID_SUBJECT_FILTER,
    errors.MIRROR_INVALID_TRANSFORM_DESTINATION,
    errors.MIRROR_OVERLAPPING_SUBJECT_FILTERS,
    errors.MIRROR_DURABLE_CONSUMER_CFG_INVALID,
    errors.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG,
)
SOURCE = _Role(
    "source",
    errors.SOURCE_INVALID_STREAM_NAME,
    errors.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED,
    errors.SOURCE_INVALID_SUBJECT_FILTER,
    errors.SOURCE_INVALID_TRANSFORM_DESTINATION,
    errors.SOURCE_OVERLAPPING_SUBJECT_FILTERS,
    errors.SOURCE_DURABLE_CONSUMER_CFG_INVALID,
    errors.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG,
)


FindStream = Callable[[str], StreamConfig | None]


def check(config: StreamConfig, find_stream: FindStream, *, is_pedantic: bool = False) -> ApiError | None:
    """Why the mirror or the sources of `config` are refused, or None. Completes `mirror_direct`."""
    if config.mirror is not None:
        error = _check_mirror(config, find_stream, is_pedantic)
    else:
        error = _check_sources(config, find_stream)
    if error is None and _is_cyclic(config, find_stream):
        error = errors.STREAM_INVALID_CONFIG(err="detected cycle")
    return error


def _check_mirror(config: StreamConfig, find_stream: FindStream, is_pedantic: bool) -> ApiError | None:
    assert config.mirror is not None
    if config.sources:
        return errors.MIRROR_WITH_SOURCES()
    if config.subjects:
        return errors.MIRROR_WITH_SUBJECTS()
    if config.first_seq:
        return errors.MIRROR_WITH_FIRST_SEQ()
    error = _check_origin(config, config.mirror, MIRROR, find_stream)
    origin = find_stream(config.mirror.name) if config.mirror.external is None else None
    if error is None and origin is not None:  # it answers direct gets for its origin if that lets itself be asked
        if is_pedantic and config.mirror_direct != origin.allow_direct:
            return errors.PEDANTIC(err="origin stream has direct get set, mirror has it disabled")
        config.mirror_direct = origin.allow_direct
    return error


def _check_sources(config: StreamConfig, find_stream: FindStream) -> ApiError | None:
    identities: set[tuple[object, ...]] = set()
    consumers: set[tuple[str, str]] = set()
    for source in config.sources:
        if source is None:
            return errors.SOURCE_INVALID_STREAM_NAME()
        error = _check_origin(config, source, SOURCE, find_stream)
        if error is not None:
            return error
        if source.identity() in identities:
            return errors.SOURCE_DUPLICATE_DETECTED()
        identities.add(source.identity())
        if source.consumer is not None:
            consumer = (source.name, source.consumer.name)
            if consumer in consumers:
                return errors.SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED()
            consumers.add(consumer)
    return None


def _check_origin(config: StreamConfig, origin: StreamSource, role: _Role, find_stream: FindStream) -> ApiError | None:
    has_name = bool(origin.name) and not set(".*> \t\r\n\f").intersection(origin.name)
    if role is SOURCE and not has_name:
        return role.invalid_name()
    if origin.filter_subject and origin.subject_transforms:
        return role.filter_and_transforms()
    if origin.filter_subject and not is_valid_subject(origin.filter_subject):
        colon = ":" if role is SOURCE else ""
        return errors.STREAM_CREATE(
            err=f"subject filter '{origin.filter_subject}' for the {role.word}{colon} invalid subject"
        )
    error = _check_transforms(origin, role)
    if error is None and origin.consumer is not None and not _is_usable_consumer(origin):
        error = role.consumer_invalid()
    if error is not None or origin.external is not None:
        return error or _check_external(origin.external)
    if not has_name:
        return role.invalid_name()
    known = find_stream(origin.name)
    if known is not None and 0 < config.max_msg_size < known.max_msg_size:
        return role.message_size_too_big()
    return None


def _check_transforms(origin: StreamSource, role: _Role) -> ApiError | None:
    before = SubjectSet()
    for transform in origin.subject_transforms:
        if transform.src and not is_valid_subject(transform.src):
            return role.transform_source(err=f"invalid subject {transform.src}")
        if transform.dest:
            if WHITE_SPACE.intersection(transform.dest):
                return role.transform_destination(err="invalid mapping destination: invalid transform")
            try:
                Transform(transform.src, transform.dest)
            except TransformError as fault:
                return role.transform_destination(err=fault)
        if any(before.overlapping(transform.src or ">")):
            return role.filters_overlap()
        before.add(transform.src or ">")
    return None


def _is_literal(subject: str) -> bool:
    return is_valid_literal(subject) and not WHITE_SPACE.intersection(subject)


def _is_usable_consumer(origin: StreamSource) -> bool:
    # The consumer itself holds the start and the filters.
    consumer = origin.consumer
    assert consumer is not None
    return (
        bool(consumer.name and consumer.deliver_subject)
        and is_valid_literal(consumer.deliver_subject)
        and not (origin.opt_start_seq or origin.opt_start_time_ns or origin.filter_subject)
    )


def _check_external(external: ExternalStream | None) -> ApiError | None:
    if external is None:
        return None
    if external.deliver and not _is_literal(external.deliver):
        return errors.STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ(prefix=external.deliver)
    if external.api and not _is_literal(external.api):
        return errors.STREAM_INVALID_CONFIG(
            err=f'stream external api prefix "{external.api}" must be a valid subject without wildcards'
        )
    if external.api == API_PREFIX:
        return errors.STREAM_EXTERNAL_API_OVERLAP(prefix=external.api, subject=API_PREFIX)
    return None


def _is_cyclic(config: StreamConfig, find_stream: FindStream) -> bool:
    """Whether following mirrors and sources of this account leads back to the stream itself."""
    seen: set[str] = set()
    ahead = _local_origins(config)
    while ahead:
        name = ahead.pop()
        if name == config.name:
            return True
        if name in seen:
            continue
        seen.add(name)
        origin = find_stream(name)
        if origin is not None:
            ahead.extend(_local_origins(origin))
    return False


def _local_origins(config: StreamConfig) -> list[str]:
    origins = config.live_sources() if config.mirror is None else [config.mirror]
    return [origin.name for origin in origins if origin.external is None]
