# Functions of Python's limited API in place of macros that it lacks, for wheels that work with all later versions of
# Python (`tools/wheels.py`). They are slower.

cdef extern from *:
    """
    #ifdef Py_LIMITED_API
    #define PyBytes_AS_STRING PyBytes_AsString
    #define PyBytes_GET_SIZE PyBytes_Size
    #define PyList_GET_ITEM PyList_GetItem
    #define PyList_GET_SIZE PyList_Size
    #define PyTuple_SET_ITEM PyTuple_SetItem
    #endif
    """
