"""What is shown of fixed results, byte by byte, as it is kept in ``outputs/``: text, HTML, markdown and
JSON.

A change of the code that is not meant to be seen leaves all of it as it is. One that is meant: look at the difference
after ``python -m tests.show.test_outputs_stay``, which writes the files anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.counting.test_view import compared, counted
from tests.profiling.cores.test_verdict import both as concurrency_profile
from tests.profiling.efficiency.test_view import shown as efficiency_profile
from tests.profiling.memory.test_view import made as memory_profile
from tests.profiling.profiles import profile_of_two_kernels
from tests.profiling.test_view import both as insights_profile
from tests.timing.samples import HERE, lone, pair
from torchbench_magic import load_ranks
from torchbench_magic.cluster.timing import join_engines
from torchbench_magic.process.environment import EnginePlace
from torchbench_magic.profiling.diff import ProfileDiff
from torchbench_magic.tdoctor.findings import Diagnosis, Finding, SelfTest
from torchbench_magic.timing.across_runs import join_processes, side_by_side
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.samples import Subject

from .builders import comparison_of, profile_of, two_shapes
from .sent import brought, unpacked

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).parent / "outputs"


def sweep() -> Comparison:
    points = [(f"n={n}", 1, (n * 1e-8 + 2e-6, n * 3e-9 + 3e-6)) for n in (10, 100, 1000, 10_000)]
    return comparison_of(points, axes=[(("n", n),) for n in (10, 100, 1000, 10_000)])


def of_processes() -> Comparison:
    ratios = (0.97, 0.98, 0.99, 1.0, 1.02, 1.03)
    return join_processes({n: pair(1e-6, ratio * 1e-6, seed=n) for n, ratio in enumerate(ratios, 1)})


def of_engines() -> Comparison:
    """Two engines of one host and one of another, and one that could not."""
    here = replace(HERE, load=0.5)
    there = replace(HERE, load=3.0, torch="2.14.0", cpu="B")
    parts = []
    for engine, (host, at) in enumerate((("a", here), ("a", here), ("b", there))):
        made = pair(1e-6, (1.5 + engine) * 1e-6, seed=engine)
        place = EnginePlace(engine, host, at)
        subjects = tuple(replace(subject, place=place, env=place.name) for subject in made.subjects)
        parts.append(replace(made, subjects=subjects, environment=at))
    return join_engines(parts, [Subject(env="b/3", place=EnginePlace(3, "b", None, "has no torch"))])


def diagnosis() -> Diagnosis:
    busy = "Other processes use 1.20 of 2 cores: absolute times are unreliable."
    findings = (
        Finding("threads", "ok", "torch uses 2 threads on 2 usable cores.", "torch.get_num_threads() 2"),
        Finding("turbo", "not available", "Whether turbo is on is unknown.", "/sys does not report it"),
        Finding("governor", "warn", "The clock follows the load.", "acpi-cpufreq", "`sudo cpupower frequency-set`"),
        Finding("outside load", "warn", busy, "in 0.5 s; most by make (pid 7) 1.1", "Wait until they have ended."),
    )
    tests = (
        SelfTest("matrix product", 2.4e-4, 1.004, 0.98, 1.02, "undecided", 1.3),
        SelfTest("tiny operation", 4e-6, 1.0, 0.999, 1.002, "same", 1.2),
    )
    return Diagnosis(findings, tests, 0.61, 0.5, "CPU · torch 2.13.0+cpu · Python 3.11.7")


RESULTS: dict[str, Callable[[], Any]] = {
    "comparison": comparison_of,
    "two_shapes": two_shapes,
    "statement": lambda: lone(3.2e-6),
    "processes": of_processes,
    "engines": of_engines,
    "sweep": sweep,
    "side_by_side": lambda: side_by_side({"before": pair(1e-6, 2e-6), "now": pair(1.5e-6, 2e-6, seed=1)}),
    "torch_compare": lambda: two_shapes().compare(),
    "counts": lambda: compared(a=counted(), b=counted(g=30)),
    "counts_diff": lambda: compared(a=counted(), b=counted(g=30)).diff("b"),
    "profile": profile_of,
    "profile_with_memory": memory_profile,
    "profile_of_a_device": profile_of_two_kernels,
    "profile_with_insights": insights_profile,
    "profile_with_concurrency": concurrency_profile,
    "profile_with_efficiency": efficiency_profile,
    "profile_diff": lambda: ProfileDiff(
        profile_of_two_kernels(), profile_of_two_kernels("aten::bmm"), ("before", "now")
    ),
    "diagnosis": diagnosis,
    "ranks": lambda: load_ranks(Path(__file__).parents[1] / "cluster" / "traces" / "sleep_1_of_3"),
    "timeline": lambda: profile_of_two_kernels().timeline(),
    "page": lambda: Page(comparison_of().to_html() or ""),
}


class Page:
    """A page by itself, as it is written to a file."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_mimebundle_(self) -> dict[str, str]:
        return {"text/html": self.text}


def named(match: re.Match[str]) -> str:
    """A script with its data as JSON, and with the names of the modules that it brings instead of their text."""
    if match[1].startswith("<script data-brings="):
        return f"[{' '.join(brought(match[0]))}]\n"
    said = re.sub(r"'([^' ]+)'((?:,at)?\]\)+)$", lambda data: f"{unpacked(data[1])}{data[2]}", match[2])
    return f"{match[1]}{said}{match[3]}"


def shown(result: Any) -> dict[str, str]:
    """Ending of a file -> the text of that carrier; names that are drawn by lot are taken out."""
    bundle = result._repr_mimebundle_()
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    found = {}
    if "text/plain" in bundle:
        found["txt"] = bundle["text/plain"]
    if "text/html" in bundle:
        text = re.sub(r"(<script[^>]*>)(.*?)(</script>)", named, bundle["text/html"], flags=re.DOTALL)
        modules = r"\b(table|flame|flame_explorer|timeline|timeline_explorer|memory)-[0-9a-f]{8}\b"
        text = re.sub(modules, r"\1", text)  # of whatever version
        drawn = {name: f"id{n}" for n, name in enumerate(dict.fromkeys(re.findall(r"\b\w*[0-9a-f]{12,32}\b", text)))}
        found["html"] = re.sub(r"\b\w*[0-9a-f]{12,32}\b", lambda match: drawn[match[0]], text)
    if hasattr(result, "to_markdown"):
        found["md"] = result.to_markdown()
    if hasattr(result, "to_json"):
        found["json"] = json.dumps(json.loads(result.to_json()), indent=1).replace(f"{ROOT}/", "")
    return found


@pytest.mark.parametrize("name", RESULTS)
def test_what_is_shown_of_a_result_stays_as_it_is(name: str) -> None:
    result = RESULTS[name]()
    outputs = shown(result)
    if "txt" in outputs and hasattr(result, "to_markdown") and not name.startswith("profile_"):
        assert str(result) == outputs["txt"], "print shows the same"
    assert {path.suffix[1:] for path in KEPT.glob(f"{name}.*")} == set(outputs)
    for ending, text in outputs.items():
        kept = (KEPT / f"{name}.{ending}").read_text(encoding="utf-8")
        assert text + "\n" == kept, f"{name}.{ending} is another; if it is meant to be: {__doc__}"


def write() -> None:
    KEPT.mkdir(exist_ok=True)
    for path in KEPT.iterdir():
        path.unlink()
    for name, make in RESULTS.items():
        for ending, text in shown(make()).items():
            (KEPT / f"{name}.{ending}").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
