# C types for inbound.py. No logic: that is in inbound.py alone.

cimport cython
from tnats.broker.hot.outbound cimport Exchange
from tnats.broker.hot.plan cimport Plan
from tnats.broker.hot.publisher cimport Publisher
from tnats.memory cimport allocate, begins, find, pin

cdef Py_ssize_t BODY_AHEAD, OWN_BODY_BYTES, SLOW_WORK
cdef int UPPER_C, LOWER_C, LF, CR


@cython.final
cdef class Inbound(Publisher):
    cdef public object read_into
    cdef public bint closed, halted, deferred, locked
    cdef public bytes tail
    cdef public bytearray body
    cdef public Py_ssize_t have, need
    cdef public long long msgs, bytes
    @cython.locals(exchange=Exchange, body=bytearray, held=Py_ssize_t, need=Py_ssize_t)
    cpdef Py_ssize_t receive(self) except -2
    @cython.locals(exchange=Exchange, held=Py_ssize_t)
    cpdef resume(self)
    @cython.locals(
        data="const unsigned char *", line=bytes, line_size=Py_ssize_t, plan=Plan, pos=Py_ssize_t, need=Py_ssize_t,
        first=Py_ssize_t, end_of_line=Py_ssize_t, publish=bint, size=Py_ssize_t, stop=Py_ssize_t, work=Py_ssize_t,
        work_max=Py_ssize_t, delivered=Py_ssize_t
    )
    cpdef feed(self, bytearray buffer, Py_ssize_t end)
    cdef keep(self, const unsigned char *data, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t need)
    cdef begin_body(self, object held)
    cpdef close(self)
