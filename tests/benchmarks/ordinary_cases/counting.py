"""Code that lies beside the notebook, or was changed since it was loaded, and what can only be used where it is."""

from __future__ import annotations

from .case import Case

_MODULE = "import torch\ndef f(x):\n    return x + 1\n"
_LOOP = "def f(x):\n    for i in range(30):\n        x = x + 1\n    return x\n"
_COUNT = "_timer.counts[None, None, 1].counts()"

CASES = [
    Case(
        "a module beside the notebook is counted as it is loaded, not as its file reads",
        "counting",
        (
            "import localmod, importlib, pathlib\nx = torch.ones(8)\ndef same(x):\n    return x + 1",
            f"%timer -q --callgrind 20 same(x)\ntruth = {_COUNT}",
            f"%timer -q --callgrind 20 localmod.f(x)\nloaded = {_COUNT}",
            (
                f"p = pathlib.Path('localmod.py'); p.write_text({_MODULE + _LOOP!r})\n"
                f"%timer -q --callgrind 20 localmod.f(x)\nedited = {_COUNT}"
            ),
            f"importlib.reload(localmod)\n%timer -q --callgrind 20 localmod.f(x)\nreloaded = {_COUNT}",
            f"localmod.f = lambda x: x\n%timer -q --callgrind 20 localmod.f(x)\nreplaced = {_COUNT}",
        ),
        """
found = [loaded, edited, reloaded, replaced]
near = [abs(n - truth) < 0.2 * truth for n in (loaded, edited)]  # but for the look-up of an attribute
outcome = "right" if all(near) and reloaded > 10 * truth and replaced < truth / 5 else "wrong"
shows = f"{found}, a function of the notebook {truth}"
""",
        files={"localmod.py": _MODULE},
        peers={
            "torch": (
                (
                    "import localmod, pathlib\nfrom torch.utils.benchmark import Timer\nx = torch.ones(8)",
                    f"pathlib.Path('localmod.py').write_text({_MODULE + _LOOP!r})",
                    (
                        "t = Timer('localmod.f(x)', setup='import localmod; x = torch.ones(8)', globals={})\n"
                        "n = t.collect_callgrind(number=20, collect_baseline=False).counts()"
                    ),
                    (
                        "t = Timer('x + 1', setup='x = torch.ones(8)')\n"
                        "truth = t.collect_callgrind(number=20, collect_baseline=False).counts()"
                    ),
                ),
                """
said = "Error" in outputs[2]
outcome = "said" if said else "right" if n < 2 * truth else "wrong"
shows = outputs[2].strip().splitlines()[-1][:60] if said else f"{n}, the same statement {truth}"
""",
            )
        },
    ),
    Case(
        "what stands in the place of an installed function is counted, and handles are refused",
        "counting",
        (
            "import torch.nn.functional as F\nx = torch.ones(8); f = open('data.txt')\nown = F.relu",
            f"%timer -q --callgrind 20 F.relu(x)\nbefore = {_COUNT}",
            f"F.relu = lambda x: own(own(x))\n%timer -q --callgrind 20 F.relu(x)\nafter = {_COUNT}",
            "F.relu = own\n%timer --callgrind 20 f.seek(0); f.read()",
        ),
        """
refused = "an open file cannot be copied" in " ".join(outputs[3].split())
counted = after > 1.7 * before
outcome = "wrong" if not counted or (not refused and _timer.counts) else "right"
shows = f"{after / before:.2f} times the instructions; the file: {'refused' if refused else 'counted'}"
""",
        files={"data.txt": "0123456789\n" * 1000},
    ),
    Case(
        "an optimizer's zero_grad is counted",
        "counting",
        (
            "p = torch.ones(8, requires_grad=True); opt = torch.optim.SGD([p], lr=0.1)",
            "%timer --callgrind 20 opt.zero_grad()",
        ),
        """
counts = _timer.counts
told = "not counted" in " ".join(outputs[1].split())
outcome = "right" if counts else "said" if told else "wrong"
shows = counts[None, None, 1].counts() if counts else outputs[1].strip()[-80:]
""",
    ),
]
