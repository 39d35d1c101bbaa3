# Types for the compiled build of hot.py.
cimport cython

@cython.locals(
    parts=list, position=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t, word=Py_ssize_t, quad=Py_ssize_t,
    out=bytearray, words="unsigned int[::1]", quads="unsigned long long[::1]", offsets=list,
    kind="unsigned int", group="unsigned int", index="unsigned long long", stamp="unsigned long long",
    start="unsigned int",
)
cpdef tuple pack(list records, unsigned long long base, unsigned int seed, unsigned long long durable)

@cython.locals(
    usable=Py_ssize_t, position=Py_ssize_t, end=Py_ssize_t, word=Py_ssize_t, quad=Py_ssize_t, size=Py_ssize_t,
    words="const unsigned int[::1]", quads="const unsigned long long[::1]", found=list,
    kind="unsigned int", sizes="unsigned int", index="unsigned long long", stamp="unsigned long long", durable="unsigned long long",
)
cpdef tuple scan(object data, Py_ssize_t start, unsigned long long base, unsigned int seed)

@cython.locals(value="unsigned int", byte=Py_ssize_t, bit=int, index="unsigned int")
cpdef Py_ssize_t find_flip(unsigned int syndrome, Py_ssize_t count, unsigned int[::1] table, unsigned int[::1] inverse)
