undef $/; my $s = <STDIN>;
sub r { my ($a, $b) = @_; my $i = index($s, $a); die "not found: $a" if $i < 0; substr($s, $i, length $a) = $b; }
r('from ..carriers.page_modules import es_module, with_modules
', 'from ..carriers.page_modules import es_module, is_own_page, with_modules
from ..carriers.result_boxes import boxed
');
r('        where: how all frames are reached (``_tprofile.frames``).
    """
', '        where: how all frames are reached (``_tprofile.frames``).
        keys: of each frame, what it is called when it is chosen, see `chosen_keys.key_of`; none: nothing can be chosen.
        links: what runs where, see `chosen_keys.links`; None where nothing is known of it.
        of: the result that it is a picture of, whose other views show what is chosen in it.
    """
');
r('    where: str = ""

    def __post_init__', '    where: str = ""
    keys: Sequence[str] = ()
    links: Mapping[str, Any] | None = None
    of: object = field(default=None, repr=False)

    def __post_init__');
r('        if not self.measures:', '        if self.keys and len(self.keys) != len(at):
            raise ValueError("a flame graph needs a key per frame, or none")
        if not self.measures:');
r('            kinds=[self.kinds[at] for at in kept],
', '            kinds=[self.kinds[at] for at in kept],
            keys=[self.keys[at] for at in kept] if self.keys else (),
');
r('        return {"text/plain": text.render(flame_document(self)), "text/html": with_modules("".join(markup(self)))}', '        fragment = boxed("".join(markup(self)), self.of)
        return {"text/plain": text.render(flame_document(self)), "text/html": with_modules(fragment)}');
r('    table. Together at most about ``most_bytes`` as a notebook stores them: the smallest frames are left out, and
    counted.
    """
    return mounted(
        "torchbench-flame",
        graph.title,
        html.static(flame_document(graph, rows)),
        "flame",
', '    table. Together at most about ``most_bytes`` as a notebook stores them: the smallest frames are left out, and
    counted. By itself, and on a page of its own, it can do more than among the views of an output.
    """
    return mounted(
        "torchbench-flame",
        graph.title,
        html.static(flame_document(graph, rows)),
        "flame" if slot and not is_own_page() else "flame_explorer",
');
r('    different = {name: at for at, name in enumerate(dict.fromkeys(names))}
', '    named = list(zip(names, graph.keys or [""] * len(names), strict=True))
    different = {pair: at for at, pair in enumerate(dict.fromkeys(named))}
');
r('        "names": list(different),
        "name": [different[name] for name in names],
', '        "names": [name for name, _ in different],
        "name": [different[pair] for pair in named],
        **({"keys": [shortened_key(key, name) for name, key in different]} if graph.keys else {}),
        **({"links": graph.links} if graph.links else {}),
');
r('def _measure(measure: Measure)', 'def shortened_key(key: str, name: str) -> str:
    """``op:*`` where the rest of a key is the name that is shown: what is read again compresses better."""
    kind, colon, rest = key.partition(":")
    return f"{kind}:*" if colon and rest == name else key


def _measure(measure: Measure)');
r('    return es_module("flame", "canvas_widget")', '    return es_module("flame_explorer", "canvas_widget")');
r('__all__ = ["KINDS", "MOST_BYTES", "FlameGraph", "Measure", "flame_document"]', '__all__ = ["KINDS", "MOST_BYTES", "FlameGraph", "Measure", "flame_document", "shortened_key"]');
print $s;
