"""Machine code, and C functions called by address, in the counting process. Nothing of it runs in a notebook.

Why at all: callgrind is told by instructions what to count (a *client request*, valgrind.h), and a count is the same
twice only if both heaps are. Both are out of Python's reach without a compiler, so the bytes are written here:
`client_requests` (toggle the counting, dump the counts), `heap` (bring malloc and Python's allocator to one state),
`c_calls` (functions of the C library, and of a compiled snippet).

What is assumed, how it is checked, and what happens where it does not hold:

**Linux, an x86_64 processor, 64 bits, CPython with a GIL.** The bytes are amd64 instructions with the System V calling
convention (arguments in rdi and rsi, the answer in rax; rax, rcx and rdx may be changed); a free-threaded build has
another object header and another allocator. Checked by `client_requests.why_unsupported` before anything is started.
Otherwise: ``%%timer --callgrind`` shows the times with the doubt "Instructions were not counted: instructions are
counted on ..."; the drop-in `Timer.collect_callgrind` warns and takes torch's own collector.

**Pages that are writable and executable**, for the bytes. Checked by asking for one (`client_requests.executable`) as
the process starts; valgrind needs them too (`valgrind.launch.check`). Otherwise: the process ends, and the doubt says
"the counting process did not start: ... writable and executable ...". Times stay.

**Valgrind's request**: four rotations of rdi that add up to nothing and ``xchg rbx, rbx``, rax pointing to the code and
five arguments, the answer in rdx. The same since valgrind 3.0 (read in valgrind.h, tried with 3.19). Checked by
`client_requests.under_valgrind` before the first job: only a valgrind that understands it answers. Otherwise: "the
process that counts did not start: not under valgrind".

**Callgrind's numbers** of its requests (``'C' << 24 | 'T' << 16`` and 2, 3, 4: callgrind.h). Checked at each job: three
files of counts must be there and add up. Otherwise: the alternative is not counted, "callgrind did not write its
counts"; a number is never shown in their place.

**CPython's C API and objects**: ``PyMethodDef``, ``METH_NOARGS``, ``PyCFunction_NewEx``,
``PyObject_Get/SetArenaAllocator`` (documented; the same in 3.11 to 3.14); ``id(x)`` is the address of x; up to 3.11 the
reference count is the first word of an object, from 3.12 on small numbers have none to change. Checked by the tests on
each Python. A wrong one would crash this process, not the notebook: "the counting process was killed".

**CPython's small objects** stand in pools of 16 KiB with a header of 48 bytes, in arenas of 1 MiB, up to 512 bytes each
(obmalloc.c from 3.10 on). Checked by a test that looks where objects come to stand. Every loop of `heap` is bounded, so
that with other numbers it ends as well: counts are right, and those of two kernels may differ by a little.

**glibc with mallinfo2** (2.33, of 2021). Checked by looking the name up; without it malloc's heap stays as it is, with
the same consequence. ``prctl`` and ``pthread_create`` of the C library are looked up by name too: a job ends with
"AttributeError", and is not counted, where they are missing.
"""
