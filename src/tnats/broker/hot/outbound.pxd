# C types for outbound.py. No logic: that is in outbound.py alone.

cimport cython
from tnats.memory cimport allocate, append, clear_stage, new_stage

cdef Py_ssize_t BUFFERS_PER_WRITE_MAX, READ_BYTES, SETTLE_ROUNDS_MAX
cdef Py_ssize_t SMALL_STAGE_BYTES, SMALL_STAGES_KEPT_MAX, STAGE_BYTES, STAGES_KEPT_MAX
cdef bytearray NO_STAGE


@cython.final
cdef class Exchange:
    cdef public object draw, wake, view
    cdef public bint passing
    cdef public bytearray buffer
    cdef public list stages, small_stages, dirty, borrowers, inboxes
    cdef public Py_ssize_t view_bytes, own_body_bytes, flush_bytes, deliveries_per_feed
    @cython.locals(outbound=Outbound, borrowers=list)
    cpdef release_buffer(self)
    cpdef announce(self, inbox)
    cdef keep_stage(self, bytearray stage, Py_ssize_t capacity)
    @cython.locals(outbound=Outbound, rounds=int, inboxes=list, dirty=list)
    cpdef settle(self)


@cython.final
cdef class Outbound:
    cdef public Exchange exchange
    cdef public object on_room, owner, write
    cdef public bytearray stage
    cdef public list queue
    cdef public Py_ssize_t bound, max_pending, sent, used, capacity, queued
    cdef public bint dirty, blocked, borrowed, closed, gated, drops_when_gated, headers, tracks_replies
    cdef public long long msgs, bytes
    cpdef Py_ssize_t pending(self)
    cpdef Py_ssize_t room(self)
    cdef Py_ssize_t gate(self)
    @cython.locals(head_size=Py_ssize_t, size=Py_ssize_t, used=Py_ssize_t)
    cdef bint put(self, bytes head, const unsigned char *data, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef bint put_bytes(self, bytes data) except -1
    @cython.locals(head_size=Py_ssize_t, size=Py_ssize_t)
    cpdef bint put_view(self, bytes head, object view, bint borrowed) except -1
    @cython.locals(exchange=Exchange, above=Py_ssize_t, gate=Py_ssize_t, pending=Py_ssize_t)
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
