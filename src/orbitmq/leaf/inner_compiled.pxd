# C types of `inner.py`, `timer_rows.py`, `word_sums.py` and `record_checks.py`. Only speed depends on this file: without it the extension does the same, slower.
cimport cython

cdef extern from *:
    """
    #include <stdint.h>
    #include <unistd.h>
    #include <sys/mman.h>
    #define ORBITMQ_PAGES_MAX 1024
    static int orbitmq_in_memory(const unsigned char *first, Py_ssize_t size) {
        unsigned char known[ORBITMQ_PAGES_MAX];
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        uintptr_t begin = (uintptr_t)first & ~(page - 1), end = (uintptr_t)first + (uintptr_t)size;
        uintptr_t count = (end - begin + page - 1) / page, at;
        if (size <= 0 || count > ORBITMQ_PAGES_MAX) return 0;
        if (mincore((void *)begin, end - begin, (void *)known) != 0) return 0;
        for (at = 0; at < count; at++) if (!(known[at] & 1)) return 0;
        return 1;
    }
    """
    int orbitmq_in_memory(const unsigned char *first, Py_ssize_t size)

# The only pointer of the leaf: mincore takes an address, and the bounds of the view are checked before it is made.
cdef inline bint pages_in_memory(const unsigned char[::1] view, Py_ssize_t begin, Py_ssize_t end):
    if begin < 0 or end <= begin or end > view.shape[0]:
        return False
    return orbitmq_in_memory(&view[begin], end - begin)

cdef long long MASK, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX, MAGIC_V1, MAGIC_V2
cdef long long TIME_DIGITS_MAX, QUEUE_DIGITS_MAX, DUE_MAX
cdef long long INDEX_HEADER_BYTES, ROLLBACK, ITEM_BYTES_MIN, PROPERTIES_MAX, PREPARED_AT, BODY_SIZE_AT, BODY_AT

@cython.locals(character=cython.Py_UCS4, code=cython.ulonglong)
cdef unsigned long long _hash_on(unsigned long long value, str text)

cdef unsigned long long _index_form(unsigned long long value)

@cython.locals(value=cython.longlong)
cpdef long long java_hash(str text)

cpdef unsigned long long index_key_hash(str topic, str key)

@cython.locals(topic=str, unique_key=str, keys=str, word=str, topic_hash=cython.ulonglong, sys_flag=cython.longlong)
cpdef hash_entries(entries, list hashes, list offsets, list times)

@cython.locals(
    table="const unsigned char[::1]", new_slots=cython.longlong, count=cython.Py_ssize_t, index=cython.Py_ssize_t,
    at=cython.Py_ssize_t, key_hash=cython.longlong, offset=cython.longlong, difference=cython.longlong,
    slot=cython.longlong, place=cython.Py_ssize_t, previous=cython.longlong,
)
cpdef long long link_entries(
    list hashes, list offsets, list times, long long number, long long begin_timestamp, slots, long long slot_count,
    dict heads, bytearray out,
) except -1

cdef int put32(bytearray out, Py_ssize_t at, long long value) except -1
cdef int put64(bytearray out, Py_ssize_t at, long long value) except -1

@cython.locals(index=cython.Py_ssize_t)
cdef int copy_bytes(bytearray out, Py_ssize_t at, bytes data) except -1

@cython.locals(
    topic_size=cython.Py_ssize_t, properties_size=cython.Py_ssize_t, body_size=cython.Py_ssize_t,
    born_size=cython.Py_ssize_t, store_size=cython.Py_ssize_t, magic=cython.longlong, length_size=cython.Py_ssize_t,
    head_size=cython.Py_ssize_t, size=cython.longlong, crc=cython.longlong, queue=cython.longlong,
    flags=cython.longlong, system=cython.longlong, times=cython.longlong, logical=cython.longlong,
    physical=cython.longlong, prepared=cython.longlong, born=cython.longlong, stored=cython.longlong,
    at=cython.Py_ssize_t, head=bytearray, middle=bytearray,
)
cpdef bytes encode_stored(
    bytes topic, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, bytes born_host,
    store_timestamp, bytes store_host, reconsume_times, prepared_transaction_offset, bytes body, bytes properties,
    body_crc,
)

@cython.locals(values=dict)
cpdef dict exact_properties(str text)

@cython.locals(values=dict, found=cython.longlong)
cpdef tuple marked_properties(str text, dict marks)

cdef long long RECORD_MIN, HOSTS_AT, PLAIN_BODY_AT, IPV6_MORE

@cython.locals(
    data="const unsigned char[::1]", left=cython.Py_ssize_t, size=cython.longlong, last=cython.longlong, hosts=cython.int,
    body_at=cython.longlong, length_at=cython.longlong, begin=cython.longlong, properties_size=cython.longlong,
    values=dict, queue_offset=cython.longlong,
)
cpdef plain_properties(buffer, Py_ssize_t at)

cdef inline unsigned long long _view32(const unsigned char[::1] data, Py_ssize_t at) except? 0xFFFFFFFFFFFFFFFF

@cython.locals(
    at=cython.Py_ssize_t, end=cython.Py_ssize_t, stop=cython.Py_ssize_t, middle=cython.Py_ssize_t,
    number_of_entries=cython.Py_ssize_t, found=cython.longlong, name=str,
)
cdef long long _read_properties(str text, dict values, dict marks) except? -1

cdef unsigned long long get32(bytes data, Py_ssize_t at) except? 0xFFFFFFFFFFFFFFFF
cdef long long signed32(unsigned long long value)
@cython.locals(high=cython.longlong)
cdef long long get64(bytes data, Py_ssize_t at) except? -1

@cython.locals(
    at=cython.Py_ssize_t, end=cython.Py_ssize_t, flag=cython.longlong, body_size=cython.longlong,
    body_at=cython.longlong, body_end=cython.longlong, properties_size=cython.longlong, item_end=cython.longlong,
    properties=bytes, rows=list, found=cython.longlong, values=dict,
)
cpdef list batch_rows(bytes body, dict marks)

cpdef list restored_rows(list records, list positions, str due_name, str needed, tuple shy, long long span_ms)

@cython.locals(
    data=bytes, end=cython.Py_ssize_t, magic=cython.longlong, body_size=cython.longlong, length_at=cython.Py_ssize_t,
    topic_size=cython.longlong, properties_at=cython.Py_ssize_t, topic_at=cython.Py_ssize_t, topic_end=cython.Py_ssize_t,
    queue_at=cython.Py_ssize_t, queue_end=cython.Py_ssize_t, due_at=cython.Py_ssize_t, due_end=cython.Py_ssize_t,
    tags_at=cython.Py_ssize_t, tags_end=cython.Py_ssize_t, unique_at=cython.Py_ssize_t, unique_end=cython.Py_ssize_t,
    keys_at=cython.Py_ssize_t, keys_end=cython.Py_ssize_t, deliver_at=cython.Py_ssize_t, deliver_end=cython.Py_ssize_t,
    slot_at=cython.Py_ssize_t, slot_end=cython.Py_ssize_t, is_needed_there=cython.bint, has_delay=cython.bint,
    begin=cython.Py_ssize_t, middle=cython.Py_ssize_t, at=cython.Py_ssize_t, stop=cython.Py_ssize_t,
    size=cython.Py_ssize_t, first=cython.longlong, name=bytes, queue_id=cython.longlong, due_ms=cython.longlong,
    slot_ms=cython.longlong, properties_end=cython.Py_ssize_t, properties=bytes, topic_bytes=bytes, topic=str,
    properties_size=cython.longlong, middle_bytes=bytearray, restored=bytearray,
)
cdef tuple _restored_row(
    record, long long position, bytes due_name, bytes needed, list shy, long long span_ms
)

@cython.locals(index=cython.Py_ssize_t)
cdef bint _is_name(bytes data, Py_ssize_t at, Py_ssize_t size, bytes name) except -1

@cython.locals(index=cython.Py_ssize_t, value=cython.longlong, digit=cython.longlong)
cdef long long _digits(bytes data, Py_ssize_t at, Py_ssize_t end) except? -2

@cython.locals(
    data="const unsigned char[::1]", spans=list, begin=cython.longlong, end=cython.longlong, examined=cython.longlong,
    count=cython.longlong, total=cython.longlong, saw_expired=cython.bint, at=cython.Py_ssize_t,
    limit=cython.Py_ssize_t, physical=cython.longlong, size=cython.longlong, code=cython.longlong,
)
cpdef tuple choose_spans(
    units, long long max_count, long long max_bytes, long long log_start, long long segment_bytes, accepts
)

cpdef list usual_timers(entries, long long precision_ms, make)

@cython.locals(
    data=bytes, end=cython.Py_ssize_t, slot_ms=cython.longlong, due_ms=cython.longlong, stated_ms=cython.longlong,
    queue_id=cython.longlong, topic=bytes, is_delay=cython.bint, is_cancel=cython.bint, is_change=cython.bint,
    is_roll=cython.bint, prepared=cython.longlong, at=cython.Py_ssize_t, middle=cython.Py_ssize_t,
    stop=cython.Py_ssize_t, first=cython.uchar, name=bytes, number=cython.longlong, text=str,
)
cdef _usual_timer(entry, long long precision_ms, make)

@cython.locals(value=cython.longlong, digit=cython.longlong)
cdef long long _once(long long known, bytes data, Py_ssize_t at, Py_ssize_t stop, long long digits_max)

@cython.locals(
    asked="const long long[::1]", known="const long long[::1]", from_positions="const long long[::1]",
    from_sizes="const long long[::1]", to_positions="long long[::1]", to_sizes="long long[::1]", count=cython.Py_ssize_t,
    place=cython.Py_ssize_t, offset=cython.longlong, low=cython.Py_ssize_t, high=cython.Py_ssize_t,
    middle=cython.Py_ssize_t, size=cython.Py_ssize_t, first=cython.longlong, last=cython.longlong,
)
cpdef Py_ssize_t find_units(wanted, offsets, positions, sizes, found_positions, found_sizes) except -1

@cython.locals(
    dues="const long long[::1]", positions="const long long[::1]", sizes="const long long[::1]",
    hashes="const long long[::1]", row=cython.Py_ssize_t,
    precision_ms=cython.longlong, now_ms=cython.longlong, oldest_ms=cython.longlong, window_slots=cython.longlong,
    count=cython.longlong, begin=cython.Py_ssize_t, place=cython.Py_ssize_t, due_ms=cython.longlong,
    physical=cython.longlong, size=cython.longlong, topic_hash=cython.longlong, slot_ms=cython.longlong,
    flags=cython.longlong, beyond_ms=cython.longlong, ahead=cython.longlong, write_ms=cython.longlong,
    number=cython.longlong, spot=cython.Py_ssize_t, previous=cython.longlong,
)
cpdef Py_ssize_t pack_slots(
    tuple units, places, Py_ssize_t at, long long magic, long long position, long long last, slots, long long[::1] wheel,
    bytearray tail,
) except -1

cdef long long _table32(const unsigned char[::1] table, Py_ssize_t at) except? -1
@cython.locals(low=cython.longlong)
cdef long long _table64(const unsigned char[::1] table, Py_ssize_t at) except? -1

cdef unsigned long long WORD

@cython.locals(
    data="const unsigned long long[::1]", bounds="const long long[::1]", factors="const unsigned long long[::1]",
    out="unsigned long long[::1]", mask=cython.ulonglong, count=cython.Py_ssize_t, row=cython.Py_ssize_t,
    begin=cython.longlong, end=cython.longlong, at=cython.size_t, total=cython.ulonglong, word=cython.ulonglong,
)
cpdef add_words(words, starts, powers, inverses, unsigned long long odd, sums)

cdef long long WHOLE_RECORD_MIN, SUM_BITS

@cython.locals(data="const unsigned char[::1]", at=cython.Py_ssize_t, last=cython.Py_ssize_t, size=cython.longlong, place=cython.Py_ssize_t)
cpdef record_starts(view, Py_ssize_t start, Py_ssize_t end)

@cython.locals(
    first="const long long[::1]", behind="const long long[::1]", sums="const unsigned int[::1]", row=cython.Py_ssize_t,
    begin=cython.Py_ssize_t, end=cython.Py_ssize_t, found=cython.longlong, wrong=list,
)
cpdef list rows_with_wrong_sums(bytes data, begins, ends, said, crc32)

@cython.locals(view="const unsigned char[::1]")
cpdef bint is_in_memory(view, Py_ssize_t begin, Py_ssize_t end) except -1

cdef long long SYS_FLAG_BYTE, HOST_BYTES_MORE

@cython.locals(
    size=cython.longlong, magic=cython.longlong, flags=cython.int, at=cython.Py_ssize_t, place=cython.Py_ssize_t,
    stop=cython.Py_ssize_t, body_size=cython.longlong, found=cython.longlong, topic_size=cython.longlong,
    topic_at=cython.Py_ssize_t, topic_end=cython.Py_ssize_t, properties_size=cython.longlong,
)
cdef Py_ssize_t sound_end(
    data, const unsigned char[::1] view, Py_ssize_t begin, Py_ssize_t end, long long base, crc32
) except -1

cpdef Py_ssize_t sound_prefix(data, long long position, crc32) except -1

@cython.locals(
    data="const unsigned char[::1]", last=cython.Py_ssize_t, first=cython.longlong, behind=cython.longlong,
    begin=cython.longlong, end=cython.longlong, found=list,
)
cpdef log_slices(view, long long base, list spans, crc32)

cdef long long TOPIC_MAX, DOT

@cython.locals(
    view="const unsigned char[::1]", entries=list, base=cython.longlong, topic_at=cython.Py_ssize_t,
    known_size=cython.longlong, topic=str, at=cython.Py_ssize_t,
    size=cython.longlong, stop=cython.Py_ssize_t, flags=cython.int, stamp_at=cython.Py_ssize_t, place=cython.Py_ssize_t,
    prepared_at=cython.Py_ssize_t, topic_size=cython.longlong, topic_end=cython.Py_ssize_t, queue_id=cython.longlong,
    found=tuple,
)
cpdef list usual_entries(bytes data, Py_ssize_t begin, Py_ssize_t end, long long position, crc32, make)

@cython.locals(
    tags_code=cython.longlong, place=cython.Py_ssize_t, middle=cython.Py_ssize_t, behind=cython.Py_ssize_t,
    name_size=cython.Py_ssize_t, name=cython.longlong, known=cython.bint, text=str,
)
cdef tuple dispatched_properties(bytes data, const unsigned char[::1] view, Py_ssize_t begin, Py_ssize_t stop)

@cython.locals(high=cython.longlong)
cdef inline long long signed_eight(const unsigned char[::1] view, Py_ssize_t at) except? -1

cdef long long PREPARED, TAGS, KEYS, UNIQ, UNDERSCORE_KEY

@cython.locals(place=cython.Py_ssize_t)
cdef bint are_equal(const unsigned char[::1] view, Py_ssize_t one, Py_ssize_t other, Py_ssize_t size) except -1

@cython.locals(
    groups=dict, found=list, topic=str, kind=cython.longlong, key=tuple, group=list, units=bytearray,
    at=cython.Py_ssize_t, first=cython.longlong, begin=cython.longlong, expected=cython.longlong, end=cython.longlong,
    number=cython.longlong, physical=cython.longlong, size=cython.longlong,
)
cpdef list queue_runs(entries, str alone)

cdef inline bint is_text(bytes data) except -1
cdef inline unsigned long long four(const unsigned char[::1] view, Py_ssize_t at) except? 0xFFFFFFFFFFFFFFFF
cdef inline unsigned long long eight(const unsigned char[::1] view, Py_ssize_t at) except? 0xFFFFFFFFFFFFFFFF
