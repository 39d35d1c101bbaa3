# C types for plan.py. No logic: that is in plan.py alone.

cimport cython
from tnats.broker.hot.message cimport Inbox, Origin, Subscription
from tnats.broker.hot.outbound cimport Outbound
from tnats.memory cimport equal, pin, word

cdef Py_ssize_t FAMILY_SUBJECTS_MAX, HEAD_SIZE, PLANS_MAX


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
    @cython.locals(message=bytes)
    cpdef Py_ssize_t publish(self, Origin origin, bytes reply, Py_ssize_t header_size, bytes data) except -1
    @cython.locals(
        data="const unsigned char *", end=Py_ssize_t, delivered=Py_ssize_t, at=Py_ssize_t, start=Py_ssize_t,
        stop=Py_ssize_t, shown=Plan
    )
    cpdef Py_ssize_t publish_bundle(self, Origin origin, bytearray bundle) except -1
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
