# C types for hot.py. No logic: that is in hot.py alone.

cimport cython
from tnats.memory cimport append, append_decimal, begins, decimal, find, new_stage, pin, set_word, word

cdef Py_ssize_t CAPACITY_MIN, CAPACITY_KEPT, HEAD_SIZE, NUMBERS_BYTES_MAX, NUMBER_DIGITS_MAX, PREFIX_BYTES
cdef int DOT
cdef bytes EMPTY_HEAD, ACK, OK, SPACE, DOT_TEXT, LINE_END


cdef class PendingWindow:
    cdef long long[::1] _seqs, _consumer_seqs, _sent, _due
    cdef Py_ssize_t _head, _end, _count, _hint, _capacity
    @cython.locals(at=Py_ssize_t, index=Py_ssize_t)
    cpdef add(self, long long seq, long long consumer_seq, long long sent_ns, long long due_ns=*)
    @cython.locals(at=Py_ssize_t)
    cpdef Py_ssize_t find(self, long long seq)
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cdef Py_ssize_t lower(self, long long seq)
    cpdef long long consumer_seq_at(self, Py_ssize_t at)
    cpdef long long sent_at(self, Py_ssize_t at)
    cpdef long long due_at(self, Py_ssize_t at)
    cpdef touch(self, Py_ssize_t at, long long sent_ns)
    cpdef set_due(self, Py_ssize_t at, long long due_ns)
    cdef check(self, Py_ssize_t at)
    @cython.locals(at=Py_ssize_t, offset=Py_ssize_t)
    cpdef add_run(self, long long first, Py_ssize_t count, long long consumer_seq, long long sent_ns)
    @cython.locals(at=Py_ssize_t, stop="long long", removed=Py_ssize_t)
    cpdef Py_ssize_t remove_run(self, long long first, Py_ssize_t count)
    @cython.locals(at=Py_ssize_t)
    cpdef set_due_run(self, long long first, long long last, long long due_ns)
    @cython.locals(
        found=list, last="long long", seq="long long", consumer_seq="long long", place=Py_ssize_t, at=Py_ssize_t,
        latest=dict
    )
    cpdef list among(self, list seqs, list consumer_seqs)
    @cython.locals(
        due=list, later=list, at=Py_ssize_t, stretch_due_ns="long long", stretch_first="long long",
        stretch_last="long long", due_ns="long long", seq="long long"
    )
    cpdef tuple due_until(self, long long first, long long last, long long now_ns)
    cdef make_room(self, Py_ssize_t count)
    @cython.locals(
        capacity=Py_ssize_t,
        seqs="long long[::1]", consumer_seqs="long long[::1]", sent="long long[::1]", due="long long[::1]",
        to=Py_ssize_t, at=Py_ssize_t
    )
    cdef pack(self, Py_ssize_t count)
    cpdef first(self)
    @cython.locals(found=list, at=Py_ssize_t)
    cpdef list seqs_up_to(self, long long last)


@cython.locals(
    prefix_size=Py_ssize_t, capacity=Py_ssize_t, used=Py_ssize_t, head=Py_ssize_t, start=Py_ssize_t,
    reply_size=Py_ssize_t, size=Py_ssize_t, subject=bytes, headers=bytes, payload=bytes, bundle=bytearray,
    seq="unsigned long long", time_ns="unsigned long long"
)
cpdef bytearray bundle_of(
    bytes prefix, unsigned long long deliveries, long long consumer_seq, long long pending, long long step,
    list messages
)

@cython.locals(
    items=list, runs=dict, prefix=bytes, prefix_size=Py_ssize_t, seqs=list, consumer_seqs=list, end=Py_ssize_t,
    data="const unsigned char *", at=Py_ssize_t, start=Py_ssize_t, tail=Py_ssize_t, reply_size=Py_ssize_t,
    header_size=Py_ssize_t, size=Py_ssize_t, body=Py_ssize_t, is_plain=bint, is_known=bint, numbers=Py_ssize_t,
    first=Py_ssize_t, second=Py_ssize_t, third=Py_ssize_t, fourth=Py_ssize_t, seq="long long",
    consumer_seq="long long"
)
cpdef list read_acks(bytearray bundle)
