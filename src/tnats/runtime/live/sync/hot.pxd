# C types for hot.py, and the calls of calls.py as C. No logic: that is in hot.py alone.

cimport cython

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <unistd.h>

    static long long tnats_next_request(int pipe) {
        int64_t request;
        ssize_t size;
        do size = read(pipe, &request, sizeof request);
        while (size < 0 && errno == EINTR);
        return size == sizeof request ? request : -1;
    }

    static void tnats_begin_writing(int file) {
        sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE);  /* whatever goes wrong, fdatasync says so */
    }

    static int tnats_sync(int file) {
        int failed;
        do failed = fdatasync(file);
        while (failed && errno == EINTR);
        return failed ? errno : 0;
    }

    static void tnats_answer(int event, uint64_t outcome) {
        while (write(event, &outcome, sizeof outcome) < 0 && errno == EINTR) {}
    }
    """
    long long next_request "tnats_next_request" (int pipe) noexcept nogil
    void begin_writing "tnats_begin_writing" (int file) noexcept nogil
    int sync "tnats_sync" (int file) noexcept nogil
    void answer "tnats_answer" (int event, unsigned long long outcome) noexcept nogil


cdef long long DESCRIPTOR_BITS


@cython.locals(request=longlong)
cpdef carry_out_syncs(int pipe)
cpdef write_ahead(int file)
