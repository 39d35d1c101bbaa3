# C types for hot.py. No logic: that is in hot.py alone.

cimport cython
from tnats.memory cimport (
    allocate, append, append_word, begins, clear_stage, decimal, equal, find, find_last, new_stage, pin, word,
)

cdef Py_ssize_t BUFFERS_PER_WRITE_MAX, FAMILY_SUBJECTS_MAX, PLANS_MAX, READ_BYTES, SETTLE_ROUNDS_MAX
cdef Py_ssize_t SMALL_STAGE_BYTES, SMALL_STAGES_KEPT_MAX, STAGE_BYTES, STAGES_KEPT_MAX
cdef Py_ssize_t SLOW_WORK, BUNDLE_HEAD_BYTES
cdef int UPPER_C, UPPER_I, LOWER_C, TAB, LF, CR, SPACE
cdef bytes PUB, HPUB
cdef bytearray NO_STAGE
cdef tuple RESERVED_REPLIES


cdef class Exchange:
    cdef public object draw, wake, view
    cdef public bint passing
    cdef public bytearray buffer
    cdef public list stages, small_stages, dirty, borrowers, inboxes
    cdef public Py_ssize_t view_bytes, own_body_bytes, flush_bytes, deliveries_per_feed
    @cython.locals(outbound=Outbound)
    cpdef release_buffer(self)
    cdef keep_stage(self, bytearray stage, Py_ssize_t capacity)
    @cython.locals(outbound=Outbound, inbox=Inbox, rounds=int, inboxes=list, dirty=list)
    cpdef settle(self)


@cython.final
cdef class Outbound:
    cdef public Exchange exchange
    cdef public object owner, write
    cdef public bytearray stage
    cdef public list queue
    cdef public Py_ssize_t max_pending, sent, used, capacity, queued
    cdef public bint dirty, blocked, borrowed, closed, gated, drops_when_gated, headers, tracks_replies
    cdef public long long msgs, bytes
    cpdef Py_ssize_t pending(self)
    @cython.locals(head_size=Py_ssize_t, size=Py_ssize_t, used=Py_ssize_t)
    cdef bint put(self, bytes head, const unsigned char *data, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef bint put_bytes(self, bytes data) except -1
    @cython.locals(head_size=Py_ssize_t, size=Py_ssize_t)
    cpdef bint put_view(self, bytes head, object view, bint borrowed) except -1
    @cython.locals(exchange=Exchange, pending=Py_ssize_t)
    cdef bint admit(self, Py_ssize_t size) except -1
    @cython.locals(stage=bytearray, sent=Py_ssize_t, kept=Py_ssize_t)
    cdef bint make_room(self, Py_ssize_t size) except -1
    @cython.locals(exchange=Exchange)
    cdef take_stage(self, Py_ssize_t size, bint small)
    @cython.locals(held=Py_ssize_t)
    cdef seal(self)
    cdef lose_stage(self)
    cdef drop_stage(self)
    cpdef bint flush(self) except -1
    @cython.locals(queue=list, buffers=list, offered=Py_ssize_t, taken=Py_ssize_t, index=Py_ssize_t, complete=bint)
    cdef bint write_once(self) except -1
    @cython.locals(queue=list, index=Py_ssize_t)
    cpdef own(self)
    cpdef close(self)
    cpdef discard(self)


@cython.final
@cython.freelist(64)
cdef class Message:
    cdef readonly bytes subject, reply, data
    cdef readonly Py_ssize_t header_size
    cdef readonly Origin origin
    cdef readonly Subscription subscription


cdef class Inbox:
    cdef public Exchange exchange
    cdef public Origin origin
    cdef public object deliver
    cdef public list batch
    cdef public long long msgs, bytes
    cdef take(
        self, Origin origin, bytes subject, const unsigned char *data, Py_ssize_t start, Py_ssize_t stop,
        Subscription subscription
    )
    @cython.locals(exchange=Exchange)
    cdef announce(self)
    cpdef drain(self)


cdef class Funnel(Inbox):
    cdef readonly bytes prefix
    cdef readonly list extensions
    cdef public Py_ssize_t rivals
    cdef dict askers
    cdef readonly dict asked
    cdef bytearray stage
    cdef Py_ssize_t used, capacity
    cdef bint takes(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t end)
    cdef take(
        self, Origin origin, bytes subject, const unsigned char *data, Py_ssize_t start, Py_ssize_t stop,
        Subscription subscription
    )
    @cython.locals(subject_size=Py_ssize_t, size=Py_ssize_t, used=Py_ssize_t, old=bytearray, stage=bytearray)
    cdef put(
        self, Origin origin, const unsigned char *names, Py_ssize_t subject_start, Py_ssize_t subject_end,
        const unsigned char *data, Py_ssize_t start, Py_ssize_t stop
    )
    @cython.locals(bundle=bytearray, used=Py_ssize_t)
    cpdef drain(self)


@cython.final
cdef class Subscription:
    cdef readonly object client
    cdef readonly bytes subject, queue, sid
    cdef readonly Outbound outbound
    cdef readonly Inbox inbox
    cdef public long long max_msgs, delivered
    cdef public bint checked


@cython.final
cdef class Target:
    cdef readonly Subscription subscription
    cdef readonly bytes subject, head, header_head
    cdef show(self, bytes subject)
    @cython.locals(subscription=Subscription, outbound=Outbound, inbox=Inbox)
    cdef bint deliver(
        self, Origin origin, const unsigned char *data, Py_ssize_t start, Py_ssize_t stop, object view, bint borrowed
    ) except -1


@cython.final
cdef class Epoch:
    cdef public long long number


@cython.final
cdef class Plan:
    cdef readonly bytes subject
    cdef public Epoch cell
    cdef readonly object builder
    cdef public long long epoch
    cdef public bint kept
    cdef public list targets, groups
    cdef public object special
    cdef public Plan shown
    @cython.locals(target=Target, group=list)
    cdef show(self, bytes subject)
    @cython.locals(
        data="const unsigned char *", end=Py_ssize_t, delivered=Py_ssize_t, at=Py_ssize_t, start=Py_ssize_t,
        stop=Py_ssize_t, shown=Plan
    )
    cdef Py_ssize_t route_bundle(self, Origin origin, bytearray bundle) except -1
    @cython.locals(twin=Plan, target=Target, group=list)
    cdef Plan copy(self)
    cdef Py_ssize_t route(
        self, Origin origin, const unsigned char *data, Py_ssize_t start, Py_ssize_t stop, bytearray buffer
    ) except -1
    @cython.locals(
        delivered=Py_ssize_t, borrowed=bint, target=Target, groups=list, group=list, count=Py_ssize_t,
        first=Py_ssize_t, step=Py_ssize_t, index=Py_ssize_t
    )
    cdef Py_ssize_t fan_out(
        self, Origin origin, const unsigned char *data, Py_ssize_t start, Py_ssize_t stop, bytearray buffer
    ) except -1


@cython.final
cdef class KnownPlans:
    cdef readonly dict plans, families
    cdef dict literals, served
    @cython.locals(plan=Plan)
    cdef Plan find(self, bytes subject)
    @cython.locals(family=Plan, prefix_size=Py_ssize_t)
    cpdef Plan find_family(self, bytes subject)
    cdef keep(self, Plan plan, bytes subject)
    cpdef clear(self)


cdef class Origin:
    cdef public Exchange exchange
    cdef public object owner
    cdef public Outbound outbound
    cdef public bint echo, stalls
    cdef public Py_ssize_t reply_size, header_size, size
    cpdef Py_ssize_t publish(self, Plan plan, bytes reply, Py_ssize_t header_size, bytes data) except -1
    cpdef Py_ssize_t publish_bundle(self, Plan plan, bytearray bundle) except -1
    cpdef Py_ssize_t route_bytes(self, Plan plan, bytes tail) except -1
    @cython.locals(end=Py_ssize_t)
    cdef Message message(
        self, bytes subject, const unsigned char *data, Py_ssize_t start, Py_ssize_t stop, Subscription subscription
    )
    @cython.locals(size=Py_ssize_t)
    cdef bytes without_headers(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t stop)


@cython.final
cdef class Inbound(Origin):
    cdef public object read_into
    cdef public bint closed, halted, deferred, locked, ceremony, no_responders, headers, reserved, fickle, unplanned
    cdef public Funnel funnel
    cdef public bytes tail, line, irregular, subject, prefix
    cdef public bytearray body
    cdef public Plan plan
    cdef public KnownPlans known
    cdef public Py_ssize_t max_payload, max_control_line, have, start_offset
    cdef public long long msgs, bytes
    cpdef forget(self)
    @cython.locals(exchange=Exchange, body=bytearray, held=Py_ssize_t, size=Py_ssize_t)
    cpdef Py_ssize_t receive(self) except -2
    @cython.locals(exchange=Exchange, held=Py_ssize_t)
    cpdef resume(self)
    @cython.locals(
        data="const unsigned char *", line=bytes, line_size=Py_ssize_t, plan=Plan, pos=Py_ssize_t,
        need=Py_ssize_t, first=Py_ssize_t, end_of_line=Py_ssize_t, publish=bint, size=Py_ssize_t, stop=Py_ssize_t,
        start=Py_ssize_t, subject_start=Py_ssize_t, work=Py_ssize_t, work_max=Py_ssize_t, delivered=Py_ssize_t
    )
    cpdef feed(self, bytearray buffer, Py_ssize_t end)
    @cython.locals(body=bytearray)
    cdef keep(self, const unsigned char *data, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t need)
    @cython.locals(
        rest=Py_ssize_t, headers=bint, end=Py_ssize_t, prefix_size=Py_ssize_t, space=Py_ssize_t, funnel=Funnel
    )
    cdef bint read_line(self, const unsigned char *data, Py_ssize_t pos, Py_ssize_t end_of_line) except -1
    @cython.locals(last=Py_ssize_t)
    cdef bint read_shape(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t end, bint headers) except -1
    cdef bint read_other(self, bytes line) except -1
    cdef bint accept_line(self, const unsigned char *data, Py_ssize_t start, bint headers) except -1
    @cython.locals(plan=Plan, known=KnownPlans, work=Py_ssize_t)
    cdef Py_ssize_t publish_first(
        self, const unsigned char *data, Py_ssize_t pos, Py_ssize_t first, Py_ssize_t stop, bytearray buffer
    ) except -1
    cdef Py_ssize_t publish_bytes(self, Plan plan, bytes tail) except -1
    @cython.locals(delivered=Py_ssize_t)
    cdef Py_ssize_t publish_checked(
        self, Plan plan, const unsigned char *data, Py_ssize_t start, Py_ssize_t stop, bytearray buffer
    ) except -1
    cpdef close(self)
