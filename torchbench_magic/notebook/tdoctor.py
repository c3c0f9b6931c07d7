"""``%tdoctor``: what on this machine spoils a measurement now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.magic import line_magic, magics_class, no_var_expand

from torchbench_magic.errors import OptionError

from .option_parser import describe, documented, read_words
from .options import DoctorOptions
from .session import SessionMagics, import_libraries, one_line_errors

if TYPE_CHECKING:
    from torchbench_magic.tdoctor.findings import Diagnosis

_HELP = f"""Find what distorts measurements on this machine now.

::

    %tdoctor [--self-test]

It looks at what other processes use (for half a second), what the hypervisor and a container's quota take, torch's
threads against the usable cores, memory, debug builds, trace hooks, the processor's governor, OpenMP, BLAS and
allocator (and which are loaded twice), valgrind, the compiler and the GPU's driver. Each line has its evidence; what to
do about it is below the table. What this system does not report is `not available`. The same in a terminal:
`python -m torchbench_magic doctor`. The result is a Diagnosis: it is returned, shown, and kept as `_tdoctor`;
`.findings` and `.frame` have everything.

Options:

{describe(DoctorOptions)}
"""


@magics_class
class DoctorMagics(SessionMagics):
    """The magic that examines the machine."""

    @no_var_expand
    @line_magic
    @documented(_HELP)
    def tdoctor(self, line: str) -> Diagnosis:
        with one_line_errors():
            options, words = read_words(DoctorOptions, "%tdoctor", line, self._session.settings.defaults())
            if words:
                raise OptionError(f"%tdoctor takes options only, not {words[0]!r}")
            self._session.check_target(options.output)
            import_libraries()
            from torchbench_magic.tdoctor.examination import doctor

            with self._session.delivering("tdoctor", options) as delivery:
                delivery.result = doctor(self_test=options.self_test, progress=delivery.progress)
        return delivery.result
