# The primitives of memory.py as C. No logic: that is in the hot modules.

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.string cimport memchr, memcmp, memcpy


cdef inline const unsigned char *pin(bytearray buffer, Py_ssize_t end) noexcept:
    return <const unsigned char *>PyByteArray_AS_STRING(buffer)


cdef inline Py_ssize_t find(const unsigned char *data, int byte, Py_ssize_t start, Py_ssize_t end) noexcept:
    cdef const unsigned char *at = NULL
    if end > start:
        at = <const unsigned char *>memchr(data + start, byte, end - start)
    return -1 if at == NULL else at - data


cdef inline Py_ssize_t find_last(const unsigned char *data, int byte, Py_ssize_t start, Py_ssize_t end) noexcept:
    cdef Py_ssize_t at = end - 1
    while at >= start and data[at] != byte:
        at -= 1
    return at if at >= start else -1


cdef inline bint begins(
    const unsigned char *data, Py_ssize_t start, Py_ssize_t end, const unsigned char *prefix, Py_ssize_t prefix_size
) noexcept:
    return start + prefix_size <= end and memcmp(data + start, prefix, prefix_size) == 0


cdef inline long long decimal(
    const unsigned char *data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t digits_max
) noexcept:
    cdef long long number = 0
    if end <= start or end - start > digits_max:
        return -1
    while start < end:
        if data[start] < 48 or data[start] > 57:
            return -1
        number = number * 10 + data[start] - 48
        start += 1
    return number


cdef inline bytearray new_stage(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)


cdef inline void clear_stage(bytearray stage) noexcept:
    pass


cdef inline void append(
    bytearray stage, Py_ssize_t used, const unsigned char *data, Py_ssize_t start, Py_ssize_t end
) noexcept:
    memcpy(PyByteArray_AS_STRING(stage) + used, data + start, end - start)


cdef inline bytearray allocate(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)


cdef inline bint equal(const unsigned char *data, Py_ssize_t start, Py_ssize_t end, bytes other) noexcept:
    return end - start == len(other) and memcmp(data + start, <const unsigned char *>other, end - start) == 0


cdef inline Py_ssize_t append_decimal(bytearray stage, Py_ssize_t used, unsigned long long number) noexcept:
    cdef unsigned char digits[20]
    cdef int at = 20
    while True:
        at -= 1
        digits[at] = 48 + number % 10
        number //= 10
        if not number:
            break
    memcpy(PyByteArray_AS_STRING(stage) + used, digits + at, 20 - at)
    return used + 20 - at


cdef inline void set_word(bytearray stage, Py_ssize_t at, unsigned int number) noexcept:
    cdef unsigned char *first = <unsigned char *>PyByteArray_AS_STRING(stage) + at
    first[0] = number & 255
    first[1] = number >> 8 & 255
    first[2] = number >> 16 & 255
    first[3] = number >> 24


cdef inline Py_ssize_t append_word(bytearray stage, Py_ssize_t used, unsigned int number) noexcept:
    set_word(stage, used, number)
    return used + 4


cdef inline Py_ssize_t word(const unsigned char *data, Py_ssize_t at) noexcept:
    return data[at] | data[at + 1] << 8 | data[at + 2] << 16 | <Py_ssize_t>data[at + 3] << 24
