"""Rules for `mirror` and `sources` of a stream's configuration: names, start, filters, transforms, externals."""

from __future__ import annotations

from collections.abc import Callable

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError, ErrorKind
from tnats.jetstream.api.subjects import is_valid_name
from tnats.jetstream.stream.config import ExternalStream, StreamConfig, StreamSource, SubjectTransform
from tnats.records import frozen
from tnats.subjects.subject_set import SubjectSet
from tnats.subjects.tokens import has_space, is_publishable, is_valid_literal, is_valid_subject, subjects_overlap
from tnats.subjects.transforms import Transform, TransformError

API_PREFIX = "$JS.API"


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
    has_name = is_valid_name(origin.name)
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
        error = check_transform(transform, role.transform_source, role.transform_destination)
        if error is not None:
            return error
        if any(before.overlapping(transform.src or ">")):
            return role.filters_overlap()
        before.add(transform.src or ">")
    return None


def check_transform(transform: SubjectTransform, source: ErrorKind, destination: ErrorKind) -> ApiError | None:
    """Why a transform is refused, as errors of these two kinds, or None."""
    if transform.src and not is_valid_subject(transform.src):
        return source(err=f"invalid subject {transform.src}")
    if not transform.dest:
        return None
    if has_space(transform.dest):
        return destination(err="invalid mapping destination: invalid transform")
    try:
        Transform(transform.src, transform.dest)
    except TransformError as fault:
        return destination(err=fault)
    return None


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
    if external.deliver and not is_publishable(external.deliver):
        return errors.STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ(prefix=external.deliver)
    if external.api and not is_publishable(external.api):
        return errors.STREAM_INVALID_CONFIG(
            err=f'stream external api prefix "{external.api}" must be a valid subject without wildcards'
        )
    if external.api == API_PREFIX:
        return errors.STREAM_EXTERNAL_API_OVERLAP(prefix=external.api, subject=API_PREFIX)
    return None


def _is_cyclic(config: StreamConfig, find_stream: FindStream) -> bool:
    """Whether what the stream stores may come back to it through mirrors and sources of this account.

    Nothing does where two filters on the way have no subject in common, with no transform between them.
    """
    seen: set[tuple[str, str]] = set()
    ahead = _local_origins(config)
    while ahead:
        place = name, pattern = ahead.pop()
        if name == config.name:
            return True
        if place in seen:
            continue
        seen.add(place)
        origin = find_stream(name)
        for further, wanted in _local_origins(origin) if origin is not None else []:
            if not wanted or not pattern or subjects_overlap(pattern, wanted):
                ahead.append((further, wanted and pattern))
    return False


def _local_origins(config: StreamConfig) -> list[tuple[str, str]]:
    """Names, and which subjects come from each; empty where they do not stay as they are, or of a mirror."""
    is_unknown = config.mirror is not None or config.subject_transform is not None
    return [
        (origin.name, "" if is_unknown or origin.subject_transforms else origin.filter_subject or ">")
        for origin in config.origins()
        if origin.external is None
    ]
