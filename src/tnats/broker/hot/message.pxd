# C types for message.py. No logic: that is in message.py alone.

cimport cython
from tnats.broker.hot.outbound cimport Exchange, Outbound
from tnats.memory cimport append, append_word, begins, new_stage, pin

cdef Py_ssize_t HEAD_SIZE, STAGE_BYTES
cdef bytearray NO_STAGE


cdef class Origin:
    cdef public Exchange exchange
    cdef public object owner
    cdef public Outbound outbound
    cdef public bint echo, stalls
    cdef public Py_ssize_t reply_size, header_size, size
    @cython.locals(end=Py_ssize_t)
    cdef Message message(self, bytes subject, const unsigned char *data, Py_ssize_t start, Py_ssize_t stop)
    @cython.locals(size=Py_ssize_t)
    cdef bytes without_headers(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t stop)


@cython.final
@cython.freelist(64)
cdef class Message:
    cdef readonly bytes subject, reply, data
    cdef readonly Py_ssize_t header_size


@cython.final
cdef class Subscription:
    cdef readonly object client
    cdef readonly bytes subject, queue, sid
    cdef readonly Outbound outbound
    cdef readonly Inbox inbox
    cdef public long long max_msgs, delivered
    cdef public bint checked


cdef class Inbox:
    cdef public Exchange exchange
    cdef public Origin origin
    cdef public object deliver
    cdef public list batch
    cdef take(self, Origin origin, bytes subject, const unsigned char *data, Py_ssize_t start, Py_ssize_t stop)
    cpdef drain(self)


cdef class Funnel(Inbox):
    cdef readonly bytes prefix
    cdef public Py_ssize_t rivals
    cdef dict askers
    cdef readonly dict asked
    cdef bytearray stage
    cdef Py_ssize_t used, capacity
    cdef bint takes(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t end)
    cdef take(self, Origin origin, bytes subject, const unsigned char *data, Py_ssize_t start, Py_ssize_t stop)
    @cython.locals(subject_size=Py_ssize_t, size=Py_ssize_t, used=Py_ssize_t, old=bytearray, stage=bytearray)
    cdef put(
        self, Origin origin, const unsigned char *names, Py_ssize_t subject_start, Py_ssize_t subject_end,
        const unsigned char *data, Py_ssize_t start, Py_ssize_t stop
    )
    @cython.locals(bundle=bytearray, used=Py_ssize_t)
    cpdef drain(self)
