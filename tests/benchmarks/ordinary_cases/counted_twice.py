"""The same code counted twice, with something in between that has nothing to do with it."""

from __future__ import annotations

from .case import Case

_COUNT = "_timer.counts[None, None, 1].counts()"

CASES = [
    Case(
        "a count before and after the module path and the PATH have become long",
        "counting",
        (
            "import os, sys\nnet, x = torch.nn.Linear(8, 8), torch.randn(4, 8)",
            f"%timer -q --callgrind 50 net(x)\nfirst = {_COUNT}",
            (
                "path = os.environ['PATH']; os.environ['PATH'] += ':/' + 'y' * 150_000\n"
                "sys.path += [f'/nowhere/{i}' for i in range(50)]\n"
                f"%timer -q --callgrind 50 net(x)\nsecond = {_COUNT}\nos.environ['PATH'] = path"
            ),
        ),
        "outcome, shows = ('right' if first == second else 'wrong'), f'{first} and {second} instructions'",
    ),
]
