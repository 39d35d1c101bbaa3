# C types for hot.py, and the primitives of memory.py as C. No logic: that is in hot.py alone.

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    static uint32_t tnats_tables[2][8][256];  /* crc32c, crc32: eight bytes at a time */

    static void tnats_make_tables(void) {
        static const uint32_t polynomials[2] = {0x82F63B78u, 0xEDB88320u};
        for (int which = 0; which < 2; which++) {
            uint32_t (*table)[256] = tnats_tables[which];
            for (uint32_t index = 0; index < 256; index++) {
                uint32_t value = index;
                for (int bit = 0; bit < 8; bit++)
                    value = value >> 1 ^ (value & 1 ? polynomials[which] : 0);
                table[0][index] = value;
            }
            for (int step = 1; step < 8; step++)
                for (int index = 0; index < 256; index++)
                    table[step][index] = table[step - 1][index] >> 8 ^ table[0][table[step - 1][index] & 0xFF];
        }
    }

    static uint32_t tnats_crc(const unsigned char *data, ptrdiff_t size, uint32_t seed, int which) {
        uint32_t (*table)[256] = tnats_tables[which];
        uint32_t value = ~seed;
        for (; size >= 8; size -= 8, data += 8) {
            uint32_t low = value ^ (data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
            value = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^ table[4][low >> 24]
                ^ table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
        }
        for (; size > 0; size--, data++)
            value = value >> 8 ^ table[0][(value ^ *data) & 0xFF];
        return ~value;
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("sse4.2")))
    static uint32_t tnats_crc32c_instruction(const unsigned char *data, ptrdiff_t size, uint32_t seed) {
        uint64_t value = ~seed;
        for (; size >= 8; size -= 8, data += 8) {
            uint64_t word;
            memcpy(&word, data, 8);
            value = __builtin_ia32_crc32di(value, word);
        }
        for (; size > 0; size--, data++)
            value = __builtin_ia32_crc32qi((uint32_t)value, *data);
        return ~(uint32_t)value;
    }
    static int tnats_has_instruction(void) { return __builtin_cpu_supports("sse4.2"); }
    #else
    static uint32_t tnats_crc32c_instruction(const unsigned char *data, ptrdiff_t size, uint32_t seed) {
        return tnats_crc(data, size, seed, 0);
    }
    static int tnats_has_instruction(void) { return 0; }
    #endif

    static int tnats_fast = -1;

    static uint32_t tnats_crc32c(const unsigned char *data, ptrdiff_t size, uint32_t seed) {
        if (tnats_fast < 0) {
            tnats_make_tables();
            tnats_fast = tnats_has_instruction();
        }
        return tnats_fast ? tnats_crc32c_instruction(data, size, seed) : tnats_crc(data, size, seed, 0);
    }

    static uint32_t tnats_crc32(const unsigned char *data, ptrdiff_t size, uint32_t seed) {
        if (tnats_fast < 0) {
            tnats_make_tables();
            tnats_fast = tnats_has_instruction();
        }
        return tnats_crc(data, size, seed, 1);
    }
    """
    unsigned int tnats_crc32c(const unsigned char *data, Py_ssize_t size, unsigned int seed) noexcept nogil
    unsigned int tnats_crc32(const unsigned char *data, Py_ssize_t size, unsigned int seed) noexcept nogil


cdef inline unsigned char *pin(bytearray buffer) noexcept:
    return <unsigned char *>PyByteArray_AS_STRING(buffer)


cdef inline const unsigned char *pin_bytes(bytes data) noexcept:
    return <const unsigned char *>PyBytes_AS_STRING(data)


cdef inline const unsigned char *address(const unsigned char[::1] view) noexcept:
    return &view[0] if view.shape[0] else NULL


cdef inline unsigned int checksum(
    const unsigned char *data, Py_ssize_t start, Py_ssize_t end, unsigned int seed
) noexcept:
    return tnats_crc32c(data + start, end - start, seed)


cdef inline unsigned int spare_checksum(
    const unsigned char *data, Py_ssize_t start, Py_ssize_t end, unsigned int seed
) noexcept:
    return tnats_crc32(data + start, end - start, seed)


cdef inline int put(unsigned char *data, Py_ssize_t at, object piece) except -1:
    cdef const unsigned char[::1] view
    cdef Py_ssize_t size
    if type(piece) is bytes:
        size = PyBytes_GET_SIZE(piece)
        memcpy(data + at, PyBytes_AS_STRING(piece), size)
    elif type(piece) is bytearray:
        size = PyByteArray_GET_SIZE(piece)
        memcpy(data + at, PyByteArray_AS_STRING(piece), size)
    elif len(piece):
        view = piece
        memcpy(data + at, &view[0], view.shape[0])
    return 0


cdef inline void put_word(unsigned char *data, Py_ssize_t at, unsigned int value) noexcept:
    (<unsigned int *>(data + at))[0] = value


cdef inline void put_front(
    unsigned char *data, Py_ssize_t at, unsigned int size, unsigned int sizes, unsigned int kind,
    unsigned int group, unsigned long long index, unsigned long long stamp,
) noexcept:
    cdef unsigned int *words = <unsigned int *>(data + at)
    words[2] = size
    words[3] = sizes
    words[4] = kind
    words[5] = group
    memcpy(words + 6, &index, 8)
    memcpy(words + 8, &stamp, 8)


cdef inline void put_sizes(
    unsigned char *data, Py_ssize_t at, Py_ssize_t subject_size, Py_ssize_t headers_size, Py_ssize_t payload_size
) noexcept:
    cdef unsigned short first = <unsigned short>subject_size
    cdef unsigned int second = <unsigned int>headers_size
    cdef unsigned int third = <unsigned int>payload_size
    memcpy(data + at, &first, 2)
    memcpy(data + at + 2, &second, 4)
    memcpy(data + at + 6, &third, 4)


cdef inline Py_ssize_t subject_size_at(const unsigned char *data, Py_ssize_t at) noexcept:
    cdef unsigned short value
    memcpy(&value, data + at, 2)
    return value


cdef inline Py_ssize_t headers_size_at(const unsigned char *data, Py_ssize_t at) noexcept:
    cdef unsigned int value
    memcpy(&value, data + at + 2, 4)
    return value


cdef inline Py_ssize_t payload_size_at(const unsigned char *data, Py_ssize_t at) noexcept:
    cdef unsigned int value
    memcpy(&value, data + at + 6, 4)
    return value


cdef inline bint is_same(
    const unsigned char *data, Py_ssize_t at, Py_ssize_t size, Py_ssize_t other, Py_ssize_t other_size
) noexcept:
    return size == other_size and memcmp(data + at, data + other, size) == 0


cdef inline bint has_same_subject(const unsigned char *data, Py_ssize_t at, Py_ssize_t other) noexcept:
    return is_same(data, at + 10, subject_size_at(data, at), other + 10, subject_size_at(data, other))


cdef Py_ssize_t FRONT, MESSAGE_FRONT
cdef unsigned long long LINK_MAX
cdef unsigned int HOLLOW, MESSAGE

@cython.locals(
    total=Py_ssize_t, position=Py_ssize_t, out=bytearray, data="unsigned char *", offsets=list, kind="unsigned int",
    group="unsigned int", index="unsigned long long", stamp="unsigned long long", start="unsigned int",
    distance="unsigned long long",
)
cpdef tuple pack(list records, unsigned long long base, unsigned int seed, unsigned long long durable)

@cython.locals(
    at=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t, key_size=Py_ssize_t, head_size=Py_ssize_t, spare="unsigned int",
)
cdef Py_ssize_t put_record(
    unsigned char *data, Py_ssize_t position, unsigned int start, unsigned int word, unsigned int group,
    unsigned long long index, unsigned long long stamp, object key, object head, object body,
) except -1

@cython.locals(
    usable=Py_ssize_t, position=Py_ssize_t, end=Py_ssize_t, word=Py_ssize_t, quad=Py_ssize_t, size=Py_ssize_t,
    shown="const unsigned char[::1]", data="const unsigned char *", words="const unsigned int[::1]", quads="const unsigned long long[::1]",
    found=list, kind="unsigned int", sizes="unsigned int", index="unsigned long long", stamp="unsigned long long",
    durable="unsigned long long",
)
cpdef tuple scan(object buffer, Py_ssize_t start, unsigned long long base, unsigned int seed)

@cython.locals(
    shown="const unsigned long long[::1]", start="unsigned long long", last="unsigned long long",
    place="unsigned long long", number=Py_ssize_t,
)
cpdef Py_ssize_t reach(object places, Py_ssize_t first, unsigned long long bytes_max, unsigned long long gap_max)

@cython.locals(
    usable=Py_ssize_t, words="const unsigned int[::1]", quads="const unsigned long long[::1]",
    bytes_shown="const unsigned char[::1]", data="const unsigned char *", shown="const unsigned long long[::1]", taken=list, number=Py_ssize_t,
    position=Py_ssize_t, word=Py_ssize_t, quad=Py_ssize_t, size=Py_ssize_t, end=Py_ssize_t, sizes="unsigned int",
    key_end=Py_ssize_t, head_end=Py_ssize_t, sequence="unsigned long long", stamp="unsigned long long",
)
cpdef list take_messages(
    bytes buffer, unsigned long long base, unsigned int seed, unsigned int kind, object sequences, object places
)

@cython.locals(shown="const unsigned char[::1]")
cpdef unsigned int checksum_of(object buffer, unsigned int seed)

@cython.locals(shown="const unsigned char[::1]")
cpdef unsigned int spare_checksum_of(object buffer, unsigned int seed)

@cython.locals(value="unsigned int", byte=Py_ssize_t, bit=int, index="unsigned int")
cpdef Py_ssize_t find_flip(unsigned int syndrome, Py_ssize_t count, unsigned int[::1] table, unsigned int[::1] inverse)

@cython.locals(
    total=Py_ssize_t, at=Py_ssize_t, subject_size=Py_ssize_t, headers_size=Py_ssize_t, out=bytearray,
    data="unsigned char *",
)
cpdef bytes join_messages(bytes front, object messages)

@cython.locals(
    shown="unsigned int[::1]", data="const unsigned char *", size=Py_ssize_t, at=Py_ssize_t, has_headers=bint,
    is_uniform=bint, number=Py_ssize_t, headers_size=Py_ssize_t, end=Py_ssize_t,
)
cpdef tuple find_messages(bytes body, Py_ssize_t start, Py_ssize_t count)

@cython.locals(
    shown="unsigned int[::1]", measured="unsigned int[::1]", data="const unsigned char *", count=Py_ssize_t,
    number=Py_ssize_t, at=Py_ssize_t, size=Py_ssize_t, headers_size=Py_ssize_t,
)
cpdef object measure_messages(bytes body, object places, Py_ssize_t base, Py_ssize_t headers_cost)

@cython.locals(
    shown="unsigned int[::1]", data="const unsigned char *", number=Py_ssize_t, start=Py_ssize_t, found=list,
)
cpdef list subjects_of_messages(bytes body, object places)

@cython.locals(
    subject="unsigned int[::1]", count_of="unsigned long long[::1]", first_of="unsigned long long[::1]",
    last_of="unsigned long long[::1]", link="unsigned int[::1]", number=Py_ssize_t, identity=Py_ssize_t,
    before="unsigned long long", sequence="unsigned long long", outside=list,
)
cpdef list link_forward(
    object identities, unsigned long long first, object counts, object firsts, object lasts, object links
)

@cython.locals(
    subject="unsigned int[::1]", count_of="unsigned long long[::1]", first_of="unsigned long long[::1]",
    last_of="unsigned long long[::1]", link="unsigned int[::1]", number=Py_ssize_t, identity=Py_ssize_t,
    following="unsigned long long", sequence="unsigned long long", is_in_front=bint,
)
cpdef bint link_backward(
    object identities, unsigned long long first, object counts, object firsts, object lasts, object links
) except -1

@cython.locals(
    total=Py_ssize_t, out=bytearray, data="unsigned char *", shown="unsigned long long[::1]",
    times="unsigned long long[::1]", position=Py_ssize_t, number=Py_ssize_t, start="unsigned int",
    word="unsigned int",
)
cpdef tuple pack_messages(
    object messages, unsigned long long first, object times_ns, unsigned long long base, unsigned int seed,
    unsigned long long place
)

@cython.locals(
    usable=Py_ssize_t, words="const unsigned int[::1]", quads="const unsigned long long[::1]",
    shown="const unsigned char[::1]", data="const unsigned char *", most=Py_ssize_t, size_of="unsigned int[::1]",
    place_of="unsigned long long[::1]", time_of="unsigned long long[::1]", subjects=list, subject=bytes,
    subject_at=Py_ssize_t, subject_size=Py_ssize_t, first="unsigned long long", count=Py_ssize_t, position=Py_ssize_t,
    word=Py_ssize_t, quad=Py_ssize_t, size=Py_ssize_t, key_size=Py_ssize_t,
)
cpdef tuple scan_messages(object buffer, Py_ssize_t start, unsigned int seed, unsigned long long place)
