# Arrays of numbers that grow at their end.

cdef struct Column:
    uint8_t* data
    size_t size
    size_t capacity


cdef inline bint reserve(Column* column, size_t more) noexcept nogil:
    """Reserve memory for the next numbers; return False if memory is exhausted."""
    cdef size_t capacity
    cdef uint8_t* data
    if column.size + more <= column.capacity:
        return True
    capacity = max(column.capacity * 2, <size_t>FIRST_CAPACITY)
    data = <uint8_t*>realloc(column.data, capacity)
    if data == NULL:
        return False
    column.data = data
    column.capacity = capacity
    return True


cdef inline void push_int64(Column* column, int64_t value) noexcept nogil:
    """Append a number. The memory must be reserved before."""
    memcpy(column.data + column.size, &value, sizeof(value))
    column.size += sizeof(value)


cdef inline void push_uint32(Column* column, uint32_t value) noexcept nogil:
    """Append a number. The memory must be reserved before."""
    memcpy(column.data + column.size, &value, sizeof(value))
    column.size += sizeof(value)


cdef object column_array(str typecode, const Column* column):
    return array(typecode, PyBytes_FromStringAndSize(<char*>column.data, column.size))
