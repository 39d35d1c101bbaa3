# C types for publisher.py. No logic: that is in publisher.py alone.

cimport cython
from tnats.broker.hot.message cimport Funnel, Origin
from tnats.broker.hot.plan cimport KnownPlans, Plan
from tnats.memory cimport begins, decimal, find, find_last

cdef Py_ssize_t SIZE_DIGITS_MAX, SLOW_WORK
cdef int UPPER_I, TAB, CR, SPACE
cdef bytes PUB, HPUB
cdef tuple RESERVED_REPLIES


cdef class Publisher(Origin):
    cdef public bint ceremony, no_responders, headers, reserved, fickle, unplanned
    cdef public Py_ssize_t max_payload, max_control_line, start_offset
    cdef public bytes line, irregular, subject, prefix
    cdef public Plan plan
    cdef public KnownPlans known
    cdef public Funnel funnel
    cpdef forget(self)
    @cython.locals(
        rest=Py_ssize_t, headers=bint, end=Py_ssize_t, prefix_size=Py_ssize_t, space=Py_ssize_t, funnel=Funnel
    )
    cdef bint read_line(self, const unsigned char *data, Py_ssize_t pos, Py_ssize_t end_of_line) except -1
    @cython.locals(last=Py_ssize_t)
    cdef bint read_shape(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t end, bint headers) except -1
    cdef bint read_other(self, bytes line) except -1
    cdef bint accept_line(self, const unsigned char *data, Py_ssize_t start, bint headers) except -1
    @cython.locals(plan=Plan, known=KnownPlans, work=Py_ssize_t, start=Py_ssize_t, tail=bytes)
    cdef Py_ssize_t publish_first(
        self, const unsigned char *data, Py_ssize_t pos, Py_ssize_t first, Py_ssize_t stop, bytearray buffer
    ) except -1
    @cython.locals(work=Py_ssize_t, delivered=Py_ssize_t)
    cdef Py_ssize_t publish_planned(
        self, Plan plan, const unsigned char *data, Py_ssize_t start, Py_ssize_t stop, bytearray buffer
    ) except -1
    cdef Py_ssize_t tell_no_responders(self, Plan plan, const unsigned char *data, Py_ssize_t start) except -1
