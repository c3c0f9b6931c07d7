"""What the doctor found as a document: whether this machine can be trusted now, then everything that was looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from torchbench_magic import units
from torchbench_magic.show.document import Document, Phrase, StyledText, backticked
from torchbench_magic.show.json_output import finite_number, plain_value
from torchbench_magic.show.table import (
    BuiltColumn,
    Cell,
    Column,
    ColumnKind,
    Group,
    Row,
    Table,
    Tone,
    built_table,
    cells_of,
    columns_of,
)

from .findings import Diagnosis, Finding, SelfTest

_LONGEST = 400
_TONES: dict[str, Tone] = {"warn": "slower", "not available": "quiet", "ok": ""}


def document(diagnosis: Diagnosis) -> Document:
    """The findings, ready for any carrier."""
    return Document(
        kind="diagnosis of the machine",
        sentence=tuple(_sentence(diagnosis)),
        tables=(_findings(diagnosis),),
        doubts=(advice := tuple(_advice(diagnosis))),
        doubts_shown=len(advice),  # what to do about each finding: all of it is the answer
        footer=tuple(_footer(diagnosis)),
        where=".frame",
    )


def under(diagnosis: Diagnosis) -> Sequence[Document]:
    """The self-test, where there was one."""
    if not diagnosis.self_test:
        return ()
    said = "Self-test: code compared with itself as by %%timer. In this session, differences of half the"
    said += " interval's width can be resolved; another session may differ by up to 3 %, see `--processes`."
    if diagnosis.partial:
        said += " It was interrupted: this is what was measured until then."
    sentence = (Phrase(_resolution(diagnosis)),)
    return (Document("self-test", sentence, (_self_test(diagnosis),), footer=(backticked(said),)),)


def whole(diagnosis: Diagnosis) -> Document:
    """Findings and self-test as two views of one document, for where only one can stand."""
    made = document(diagnosis)
    below = under(diagnosis)
    sentences = (made.sentence, *(each.sentence for each in below))
    return replace(
        made,
        sentence=tuple(
            phrase for at, each in enumerate(sentences) for phrase in ((Phrase(". "),) if at else ()) + each
        ),
        tables=(*made.tables, *(table for each in below for table in each.tables)),
        footer=(*made.footer, *(line for each in below for line in each.footer)),
    )


def _sentence(diagnosis: Diagnosis) -> Iterator[Phrase]:
    found = diagnosis.warnings
    states = {one.kind: one.state for one in diagnosis.findings}
    if found:
        yield from backticked(found[0].text.rstrip("."))
        if len(found) > 1:
            yield Phrase(f"; {len(found) - 1} more problem{'s' if len(found) > 2 else ''} below")
    elif states.get("outside load") == "ok":
        yield Phrase("This machine is ready to measure", "strong")
        yield Phrase(": nothing was found that distorts a measurement")
    else:
        yield Phrase("Nothing was found that distorts a measurement, but the load of other processes is unknown here")


def _resolution(diagnosis: Diagnosis) -> str:
    without = [one.name for one in diagnosis.self_test if not math.isfinite(one.smallest_effect)]
    if without:
        return f"No difference can be resolved now for {', '.join(without)}"
    worst = max(diagnosis.self_test, key=lambda one: one.smallest_effect)
    return f"Differences of {_percent(worst.smallest_effect)} or more can be resolved now (worst: {worst.name})"


def _percent(share: float) -> str:
    return f"{units.percent(share)} %" if math.isfinite(share) else "not known"


def _findings(diagnosis: Diagnosis) -> Table:
    def column(name: str, label: str, cell: Callable[[Finding], Cell], kind: ColumnKind = "text") -> BuiltColumn:
        return BuiltColumn(Column(name, label, kind=kind, leading=True, widest=_LONGEST), cell)  # wrapped, not cut

    built = [
        column("state", "state", lambda one: Cell(one.state, tone=_TONES[one.state])),
        column("kind", "about", lambda one: Cell(one.kind)),
        column("text", "found", lambda one: Cell(one.text.replace("`", ""))),
        column("evidence", "evidence", lambda one: Cell(one.evidence, tone="quiet")),
    ]
    rows = [Row(cells_of(built, one), key=one.kind) for one in diagnosis.findings]
    return Table("findings", columns_of(built), tuple(Group((row,)) for row in rows))


def _self_test(diagnosis: Diagnosis) -> Table:
    scale = units.smallest_scale([one.median for one in diagnosis.self_test])
    median = lambda one: Cell(units.number(one.median, scale), one.median)
    built = [
        BuiltColumn(Column("name", "self-test", kind="code"), lambda one: Cell(one.name)),
        BuiltColumn(Column("median", "median", scale.unit, "number"), median),
        BuiltColumn(Column("ratio", "ratio", kind="number"), _ratio),
        BuiltColumn(Column("interval", "95 % interval", kind="range"), _interval),
        BuiltColumn(Column("effect", "resolves from", "%", "number"), _effect),
        BuiltColumn(Column("verdict", "verdict", kind="verdict"), _verdict),
    ]
    return built_table("self-test", built, diagnosis.self_test, key=lambda one: str(one.name))


def _ratio(one: SelfTest) -> Cell:
    known = math.isfinite(one.smallest_effect)
    return Cell(units.ratio(one.ratio, one.low, one.high), one.ratio) if known else Cell(units.NOT_MEASURED)


def _verdict(one: SelfTest) -> Cell:
    return Cell(one.verdict, tone="slower" if one.is_wrong else "")


def _interval(one: SelfTest) -> Cell:
    known = math.isfinite(one.smallest_effect)
    return Cell(units.interval(one.low, one.high) if known else "not known", one.low if known else None, "quiet")


def _effect(one: SelfTest) -> Cell:
    known = math.isfinite(one.smallest_effect)
    return Cell(units.percent(one.smallest_effect), one.smallest_effect) if known else Cell(units.NOT_MEASURED)


def _advice(diagnosis: Diagnosis) -> Iterator[StyledText]:
    """What to do, each once, with what it is about."""
    about: dict[str, list[str]] = {}
    for one in diagnosis.findings:
        if one.fix:
            about.setdefault(one.fix, []).append(one.kind)
    yield from (backticked(f"{', '.join(kinds)}: {fix}") for fix, kinds in about.items())


def _footer(diagnosis: Diagnosis) -> Iterator[StyledText]:
    if diagnosis.partial and not diagnosis.self_test:
        yield (Phrase("The self-test was interrupted before anything was measured."),)
    facts = [f"{len(diagnosis.findings)} findings in {units.seconds_text(diagnosis.seconds)}"]
    if diagnosis.watched:
        facts.append(f"load watched for {units.seconds_text(diagnosis.watched)}")
    yield (Phrase(" · ".join([*facts, *([diagnosis.environment] if diagnosis.environment else [])])),)


def facts(diagnosis: Diagnosis) -> dict[str, Any]:
    """What a diagnosis adds to the envelope of every result's JSON."""
    tests = [{**asdict(one), "smallest_effect": one.smallest_effect} for one in diagnosis.self_test]
    return {
        "findings": [plain_value(asdict(one)) for one in diagnosis.findings],
        "self_test": [plain_value(test) for test in tests],
        "smallest_effect": finite_number(diagnosis.smallest_effect),
        "seconds": finite_number(diagnosis.seconds),
        "watched": finite_number(diagnosis.watched),
        "repeat": {"command": "%tdoctor --self-test" if diagnosis.self_test else "%tdoctor"},
    }
