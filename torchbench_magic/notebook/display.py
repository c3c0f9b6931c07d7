"""How a result gets on the screen: once, in the mode that is set, in the place where its progress stood."""

from __future__ import annotations

import contextvars
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from torchbench_magic.printable import printable
from torchbench_magic.process.output import shown

from .config import settings_of
from .hosts import host_of, is_watched, page_of

_RESULTS = (
    ("torchbench_magic.timing.comparison", "Comparison"),
    ("torchbench_magic.counting.diff", "CountsDiff"),
    ("torchbench_magic.tdoctor.findings", "Diagnosis"),
    ("torchbench_magic.profiling.profile", "Profile"),
    ("torchbench_magic.profiling.diff", "ProfileDiff"),
    ("torchbench_magic.cluster.job_profile", "RankProfile"),
)
_CALLGRIND = "torch.utils.benchmark.utils.valgrind_wrapper.timer_interface"
_LIST = ("torch.autograd.profiler_util", "EventList")
_TORCHS = {  # type of torch's -> the function of `torch_results` that shows it
    ("torch.utils.benchmark.utils.common", "Measurement"): "measurement",
    ("torch.utils.benchmark.utils.compare", "Compare"): "compare_table",
    (_CALLGRIND, "CallgrindStats"): "callgrind_stats",
    (_CALLGRIND, "FunctionCounts"): "function_counts",
    _LIST: "event_list",
    ("torch.profiler.profiler", "profile"): "profiler_averages",
}
_PICTURES = (
    ("torchbench_magic.show.flame", "FlameGraph"),
    ("torchbench_magic.profiling.pictures.timeline", "Timeline"),
)
_LIVE = ("torchbench_magic.show.kept_output", "Lasting")
"""By name: that torch's results are shown richly is no reason to import torch."""
_KEPT = ("_timer", "_tprofile", "_tcompare", "_tdoctor")
_EACH = 1.0  # seconds between two lines that a thread shows
_VIEW = "application/vnd.jupyter.widget-view+json"


class Output:
    """The place of one magic's output: what is under way, and in the end the result.

    It is a `process.interrupts.Watching`, and comes through while the output of measured code is dropped. A line
    appears when the run has taken ``delay`` seconds, and the result takes its place under the same display id, so that
    a saved notebook keeps the result alone. Where somebody sits before a kernel, the line is a live view with the table
    as far as it is known; else it is text.
    """

    def __init__(
        self, shell: Any, *, delay: float = 1.0, live: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shell = shell
        self._clock = clock
        self._due = self._draw_due = clock() + delay
        self._id = os.urandom(16).hex()
        self._is_open = False
        self._in_kernel = host_of(shell).draws
        self._is_live = live and is_watched(shell)
        self._view: Any = None
        self._rows = 0
        self._alarm: threading.Timer | None = None
        self._counting: tuple[threading.Event, threading.Thread] | None = None

    def expect(self, rows: int) -> None:
        """The result has so many rows: the live view keeps room for them."""
        self._rows = max(self._rows, rows)

    @shown()
    def await_end(self, done: float, total: float | None, what: str, *, after: float = 0.0) -> None:
        """Show the line when it is due, though nobody calls meanwhile: from a thread that sleeps until then. What it
        sends belongs to the cell that began it."""
        if after:
            self._quiet()
        else:
            self.update(done, total, what)
        context, left = contextvars.copy_context(), max(self._due - self._clock(), after)
        if self._in_kernel and (after or not self._is_open) and left > 0:
            line = self._line(done, total, what)
            self._alarm = threading.Timer(left, context.run, (self._publish, {"text/plain": line}))
            self._alarm.daemon = True
            self._alarm.start()

    @shown()
    def count_up(self, what: str) -> None:
        """Show "compiling f, 12 s" from a thread, each second anew, from when the line is due."""
        self._quiet()
        if not self._in_kernel and not sys.stdout.isatty():
            return
        context, began, ended, stdout = contextvars.copy_context(), self._clock(), threading.Event(), sys.stdout

        def count() -> None:
            wait = max(self._due - self._clock(), _EACH)
            while not ended.wait(wait):
                took = self._clock() - began
                if self._in_kernel and self._view is None:  # a live view is opened by the thread of the cell
                    self._publish({"text/plain": self._line(took, None, what)})
                else:
                    self._tell(took, None, what, stdout)
                wait = _EACH

        self._counting = ended, threading.Thread(target=context.run, args=(count,), daemon=True)
        self._counting[1].start()

    @shown()
    def counted(self) -> None:
        """What was counted has ended."""
        self._quiet()

    def _quiet(self) -> None:
        """Nothing is shown from a thread any more when this returns."""
        if self._counting is not None:
            ended, thread = self._counting
            self._counting = None
            ended.set()
            thread.join()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm.join()
            self._alarm = None

    @shown()
    def update(self, done: float, total: float | None, what: str) -> None:
        self._quiet()
        if self._view is not None and self._view.stop_asked:
            self._view.tell(done, total, what)
            raise KeyboardInterrupt
        now = self._clock()
        if now < self._due:
            return
        self._due = now + 0.25  # a reader sees no more than four changes a second
        self._tell(done, total, what, sys.stdout)

    def _tell(self, done: float, total: float | None, what: str, stdout: Any) -> None:
        line = self._line(done, total, what)
        if self._is_live:
            self._tell_live(done, total, what, line)
        elif self._in_kernel:
            self._publish({"text/plain": line})
        elif stdout.isatty():
            line = line.replace("interrupt the kernel", "Ctrl-C")
            stdout.write(f"\r\x1b[K{line[:99]}")
            stdout.flush()
            self._is_open = True

    @staticmethod
    def _line(done: float, total: float | None, what: str) -> str:
        if what.startswith("making"):
            return f"{what} · an interrupt takes effect once it is shown"
        if what.startswith("compiling ") and total is None:
            return f"{printable(what)}, {done:.0f} s · interrupt the kernel to stop and keep partial results"
        spent = f"{done:.1f} s" if total is None else f"{done:.1f} of {total:.1f} s"
        return f"{printable(_doing(what))} · {spent} · interrupt the kernel to stop and keep partial results"

    def _tell_live(self, done: float, total: float | None, what: str, line: str) -> None:
        if self._view is None:
            from .widgets import LiveView

            self._view = LiveView(self._rows)
            data, metadata = self._shell.display_formatter.format(self._view)
            self._publish({**data, "text/plain": line}, metadata)
        self._view.tell(done, total, _doing(what))

    @shown()
    def watch(self, partial: Callable[[], Any]) -> None:
        """Draw what is known so far, at most once a second and in at most a twentieth of the time."""
        began = self._clock()
        if self._view is None or began < self._draw_due:
            return
        known = partial()
        if known is not None:
            self._view.draw(known)
        ended = self._clock()
        self._draw_due = ended + max(1.0, 20 * (ended - began))

    @shown()
    def show(self, bundle: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        """Show ``bundle`` where the progress stood."""
        self._quiet()
        self._end_line()
        if self._view is not None and _VIEW in bundle:
            self.clear()  # JupyterLab would draw the new view in the place of the old one, and hide both as that closes
        self._publish(bundle, metadata)
        self._close_view()

    @shown()
    def clear(self) -> None:
        """Take the progress away and leave nothing."""
        self._quiet()
        if self._in_kernel and self._is_open:
            self._publish({"text/plain": ""})
        self._end_line()
        self._close_view()

    def _close_view(self) -> None:
        if self._view is not None:
            self._view.close()
            self._view = None

    def _end_line(self) -> None:
        if self._is_open and not self._in_kernel:
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()
            self._is_open = False

    def _publish(self, data: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        update, self._is_open = self._is_open and self._in_kernel, True
        self._shell.display_pub.publish(
            data=data, metadata=metadata or {}, transient={"display_id": self._id}, update=update
        )


def _doing(what: str) -> str:
    """``compiling 2 snippets`` is said as it is, ``2 alternatives, 1 thread`` is being measured."""
    return what if what.partition(" ")[0].endswith("ing") else f"measuring {what}"


class ShownOnce:
    """A display hook for the rest of the cell that does not show again what was shown.

    ``%timer STMT`` displays its result and returns it; as the cell's last expression it would be displayed a
    second time. IPython puts its own hook back when the cell ends. ``Out[n]`` and ``_`` are set as ever.
    """

    def __init__(self, shell: Any, before: Callable[[Any], None]) -> None:
        self._shell = shell
        self._before = before
        self._shown: object = None
        self._keeps_out = True

    @classmethod
    def mark(cls, shell: Any, result: object, *, keeps_out: bool = True) -> None:
        """Let ``result`` not be shown again in this cell; without ``keeps_out`` it is not in ``Out[n]`` either."""
        trap = shell.display_trap
        if not getattr(trap, "is_active", getattr(trap, "_nested_level", 0) > 0):  # IPython up to 9.0 has the count
            return  # no cell is running: nothing would put the hook back
        hook = sys.displayhook
        if not isinstance(hook, cls):
            hook = cls(shell, hook)
            sys.displayhook = hook
        hook._shown, hook._keeps_out = result, keeps_out

    def __call__(self, value: object = None) -> None:
        if value is None or value is not self._shown:
            self._before(value)
        elif self._keeps_out and self._before is self._shell.displayhook:
            hook: Any = self._shell.displayhook
            hook.check_for_underscore()
            hook.update_user_ns(value)
            hook.fill_exec_result(value)


_Bundle = tuple[dict[str, Any], dict[str, Any]]


def bundle_of(shell: Any, result: Any, *, explore: bool = False, **options: Any) -> _Bundle:
    """Mime bundle and metadata of a result in the mode that is set (``%config TorchBench.display``).

    ``options`` go to the view, such as ``sort_by`` of a profile.
    """
    from torchbench_magic.result_base import show
    from torchbench_magic.show.document import shown_as
    from torchbench_magic.show.javascript import shown_on

    mode = _mode(shell, explore)
    with shown_as(_name_of(shell, result)), shown_on(page_of(shell)):
        if mode == "widget":
            data, metadata = shell.display_formatter.format(show(result, "explore", **options))
            return data, metadata
        if mode == "text":
            return {"text/plain": show(result, "repr", **options)}, {}
        return show(result, "mimebundle", **options), {}


def _name_of(shell: Any, result: Any) -> str:
    """The variable of the notebook that holds the result; empty where there is none."""
    names = shell.user_ns
    own = (name for name, value in list(names.items()) if value is result and not name.startswith("_"))
    return next((name for name in _KEPT if names.get(name) is result), None) or next(own, "")


def _mode(shell: Any, explore: bool = False) -> str:
    """How results are shown; without a kernel as text."""
    settings = settings_of(shell)
    mode = "widget" if explore else settings.display if settings is not None else "auto"
    return mode if host_of(shell).draws else "text"


def register_formatters(shell: Any) -> None:
    """Let results, torch's own among them, follow the display mode wherever they are shown; none is imported for it."""
    formatter = shell.display_formatter.mimebundle_formatter
    for module, name in _RESULTS:
        formatter.for_type_by_name(module, name, lambda result, **_: bundle_of(shell, result))
    for (module, name), shower in _TORCHS.items():
        if name not in _printers_of(formatter, module):  # who has a printer of their own keeps it
            formatter.for_type_by_name(module, name, _OfTorch(shell, shower))
    for module, name in _PICTURES:
        formatter.for_type_by_name(module, name, lambda picture, **_: _on_page(shell, picture._repr_mimebundle_))
    formatter.for_type_by_name(*_LIVE, lambda live, **_: _live_bundle(shell, live))
    plain = shell.display_formatter.formatters["text/plain"]
    plain.for_type_by_name(*_LIST, _print_events)  # as it is a list, IPython's printer of lists would come first


def _live_bundle(shell: Any, live: Any) -> Any:
    """The view of a live widget; as an output of its own before it, what it shows, for where the view is lost."""
    if not host_of(shell).draws:
        return live._repr_mimebundle_()
    still, view = _on_page(shell, live.outputs)
    shell.display_pub.publish(data=still, metadata={})
    return view


def _on_page(shell: Any, made: Callable[[], Any]) -> Any:
    """An output that comes to stand where the cell that runs shows what it displays."""
    from torchbench_magic.show.javascript import shown_on

    with shown_on(page_of(shell)):
        return made()


def withdraw_formatters(shell: Any) -> None:
    """Undo `register_formatters`."""
    formatter = shell.display_formatter.mimebundle_formatter
    for module, name in (*_RESULTS, *_TORCHS, *_PICTURES, _LIVE):
        _withdraw(formatter, module, name, _OfTorch if (module, name) in _TORCHS else object)
    _withdraw(shell.display_formatter.formatters["text/plain"], *_LIST, type(_print_events))


def _withdraw(formatter: Any, module: str, name: str, kind: type) -> None:
    """Take the printer of one type away, if it is of that kind."""
    loaded = getattr(sys.modules.get(module), name, None)
    ours = formatter.deferred_printers.get((module, name)) or formatter.type_printers.get(loaded)
    if isinstance(ours, kind):
        formatter.deferred_printers.pop((module, name), None)
        formatter.type_printers.pop(loaded, None)


def _print_events(events: Any, printer: Any, cycle: bool) -> None:
    """torch's table of an ``EventList``."""
    from torchbench_magic.show.torch_results import events_text

    printer.text(events_text(events))


def _printers_of(formatter: Any, module: str) -> set[str]:
    """Names of the types of a module that have a printer already, deferred or not."""
    deferred = {name for where, name in formatter.deferred_printers if where == module}
    return deferred | {kind.__name__ for kind in formatter.type_printers if kind.__module__ == module}


class _OfTorch:
    """Shows one type of torch's."""

    def __init__(self, shell: Any, shower: str) -> None:
        self._shell, self._shower = shell, shower

    def __call__(self, value: Any, include: Any = None, exclude: Any = None) -> Any:
        from torchbench_magic.show import torch_results

        own = getattr(value, "_repr_mimebundle_", None)  # a subclass may show itself
        shown = _on_page(self._shell, own or (lambda: getattr(torch_results, self._shower)(value)))
        if shown is None:
            return None
        return {"text/plain": shown["text/plain"]} if _mode(self._shell) == "text" else shown
