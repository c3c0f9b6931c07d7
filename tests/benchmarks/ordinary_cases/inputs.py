"""Inputs that the first call uses up, work that it does once, headers that are nearly one, axes without use."""

from __future__ import annotations

from .case import Case


def _faster() -> str:
    """A verdict `faster` or `slower` is wrong, whatever words stand beside it."""
    return """
row = r.frame.iloc[-1]
decided = row.verdict in ("faster", "slower", "same")
outcome = "said" if not decided and any(d.kind in ("used-up", "other-work") for d in r.warnings) else "wrong"
shows = f"{row.verdict} {row.ratio:.3g}"
"""


def _seconds(setup: str, statement: str, least_us: float) -> dict[str, tuple[tuple[str, ...], str]]:
    """What timeit and torch say of one statement that takes ``least_us`` microseconds at least when it works."""
    judge = f"outcome = 'right' if t > {least_us}e-6 else 'wrong'; shows = f'{{t * 1e6:.3g}} us'"
    return {
        "timeit": ((setup, f"t = %timeit -o -q -r 3 {statement}"), "t = t.average\n" + judge),
        "torch": (
            (
                setup,
                "from torch.utils.benchmark import Timer",
                f"t = Timer({statement!r}, globals=globals()).blocked_autorange()",
            ),
            "t = t.median\n" + judge,
        ),
    }


_GEN = "lst = list(range(1000)); gen = (i for i in lst)"
_FILE = "f = open(torch.__file__)"
_CACHED = (
    "import functools\n@functools.lru_cache\ndef squares(n): return sum(i * i for i in range(n))\n"
    "def plain(n): return sum(i * i for i in range(n))"
)
_MEMO = (
    "cache = {}\ndef squares(n):\n    if n not in cache: cache[n] = sum(i * i for i in range(n))\n    return cache[n]\n"
    "def plain(n): return sum(i * i for i in range(n))"
)
_LAZY = (
    "class Model:\n    table = None\n    def __call__(self, x):\n        if self.table is None:\n"
    "            self.table = torch.linspace(0, 1, 1_000_000).exp().cumsum(0)\n        return x + self.table[0]\n"
    "model = Model(); x = torch.ones(3)"
)
_SORT = "import random; numbers = [random.random() for _ in range(5000)]"

_QUEUES = (
    "import queue, heapq, collections\nq = queue.Queue()\nfor i in range(1000): q.put(i)\n"
    "d = collections.deque(range(1000)); h = list(range(1000)); s = set(h); items = dict.fromkeys(h)\n"
    "x = torch.randn(500)"
)
_CACHE = (
    "from transformers import GPT2Config, GPT2LMHeadModel, DynamicCache\n"
    "model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=100, n_positions=50_000,"
    " bos_token_id=0, eos_token_id=0)).eval()\nids = torch.ones(1, 1, dtype=torch.long); cache = DynamicCache()"
)


def _emptied(name: str, statement: str, setup: str = _QUEUES) -> Case:
    cell = f"%%timer -t 1 -o r\n# --- other\ntorch.ones(500).exp()\n# --- taken\n{statement}"
    return Case(name, "inputs", (setup, cell), _faster())


CASES = [
    _emptied("a queue that is taken from", "while not q.empty(): q.get()"),
    _emptied("a deque that is taken from", "while d: d.popleft()"),
    _emptied("a heap that is taken from", "while h: heapq.heappop(h)"),
    _emptied("a set that is taken from", "while s: s.pop()"),
    _emptied("a dict that is taken from", "while items: items.popitem()"),
    _emptied("a list emptied bit by bit", "if h: h.pop(); x.exp()"),
    Case(
        "a key-value cache that grows",
        "inputs",
        (_CACHE, "%%timer -t 1 -o r\n# --- other\nids.exp()\n# --- taken\nmodel(ids, past_key_values=cache)"),
        "kinds = {d.kind for d in r.warnings}\noutcome = 'said' if kinds & {'used-up', 'grown'} else 'wrong'\n"
        "shows = f\"{r.frame.iloc[-1].verdict} {r.frame.iloc[-1].ratio:.3g}\"",
        needs="transformers",
    ),
    Case(
        "a queue that is taken from, with --restore",
        "inputs",
        (
            _QUEUES,
            (
                "%%timer -t 1 --restore -o r\n# --- once\nwhile not q.empty(): q.get()\n"
                "# --- twice\nwhile not q.empty(): q.get(); q.qsize()"
            ),
        ),
        "row = r.frame.iloc[0]\noutcome = 'right' if row['median'] > 100e-6 else 'wrong'\n"
        "shows = f\"{row['median'] * 1e6:.0f} us\"",
    ),
    Case(
        "a generator beside a list",
        "inputs",
        (_GEN, "%%timer -t 1 -o r\n# --- list\nsum(lst)\n# --- gen\nsum(gen)"),
        _faster(),
        peers=_seconds(_GEN, "sum(gen)", 2),
    ),
    Case(
        "a generator in %timer",
        "inputs",
        (_GEN, "%timer -t 1 -o r sum(gen)"),
        "outcome = 'said' if 'did not do the work of the first' in ' '.join(outputs[1].split()) else 'wrong'\n"
        "shows = outputs[1][:60]",
        peers=_seconds(_GEN, "sum(gen)", 2),
    ),
    Case(
        "the same cell run a second time",
        "inputs",
        (_GEN, "%timer -t 1 -q sum(gen)", "%timer -t 1 -o r sum(gen)"),
        "outcome = 'said' if outputs[2].startswith('gen was used up before the first call') else 'wrong'\n"
        "shows = outputs[2][:60]",
    ),
    Case(
        "zip over an iterator, with --restore",
        "inputs",
        (
            "lst = list(range(1000)); it = iter(lst)",
            "%%timer -t 1 --restore -o r\n# --- list\nsum(lst)\n# --- iterator\nsum(it)",
        ),
        "row = r.frame.iloc[1]\noutcome = 'right' if 0.7 < row.ratio < 1.4 else 'wrong'\nshows = f'{row.ratio:.2f}'",
    ),
    Case(
        "the batches of a DataLoader's iterator",
        "inputs",
        (
            "loader = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=8); batches = iter(loader)",
            "%%timer -t 1 -o r\n# --- loader\nfor b in loader: pass\n# --- batches\nfor b in batches: pass",
        ),
        _faster(),
    ),
    Case(
        "a file that is read to its end",
        "inputs",
        (_FILE, "%timer -t 1 -o r f.read()"),
        "outcome = 'said' if any(d.kind == 'used-up' for d in r.warnings) else 'wrong'\nshows = outputs[1][:60]",
        peers=_seconds(_FILE, "f.read()", 10),
    ),
    Case(
        "lru_cache beside the plain function",
        "inputs",
        (_CACHED, "%%timer -t 1 -o r\n# --- plain\nplain(2000)\n# --- cached\nsquares(2000)"),
        _faster(),
        peers=_seconds(_CACHED, "squares(2000)", 20),
    ),
    Case(
        "a dict as a cache",
        "inputs",
        (_MEMO, "%%timer -t 1 -o r\n# --- plain\nplain(2000)\n# --- memo\nsquares(2000)"),
        _faster(),
        peers=_seconds(_MEMO, "squares(2000)", 20),
    ),
    Case(
        "a table that a model makes when first called",
        "inputs",
        (
            _LAZY,
            "%%timer -t 1 -o r\n# --- table\ntorch.linspace(0, 1, 1_000_000).exp().cumsum(0)\n# --- model\nmodel(x)",
        ),
        _faster(),
        peers=_seconds(_LAZY, "model(x)", 500),
    ),
    Case(
        "a list that is sorted in place",
        "inputs",
        (_SORT, "%%timer -t 1 -o r\n# --- sorted\nsorted(numbers[::-1])\n# --- sort\nnumbers.sort()"),
        _faster(),
        peers=_seconds(_SORT, "numbers.sort()", 150),
    ),
    Case(
        "a loader that makes its iterator anew",
        "inputs",
        (
            "lst = list(range(1000))\ndef pull():\n    it = iter(lst)\n    return sum(it)",
            "%%timer -t 1 -o r\n# --- one\npull()\n# --- two\npull(); pull()",
        ),
        "row = r.frame.iloc[1]\noutcome = 'right' if row.verdict == 'slower' else 'wrong'\nshows = row.verdict",
    ),
    Case(
        "results kept under a name",
        "inputs",
        (
            "out = {}; x = torch.randn(100_000)",
            "%%timer -t 1 -o r\n# --- one\nout['a'] = x.exp()\n# --- two\nout['b'] = x.exp().exp()",
        ),
        "row = r.frame.iloc[1]\noutcome = 'right' if row.verdict == 'slower' else 'wrong'\nshows = row.verdict",
    ),
    Case(
        "a header short of a dash",
        "inputs",
        (
            "x = torch.randn(10_000)",
            "%%timer -t 1 -o r\n# --- one\nx.exp()\n# -- two\nx.exp()\n# --- three\nx.exp()",
        ),
        "outcome = 'said' if 'line 4: `# -- two` looks like a header' in outputs[1] else 'wrong'\nshows = ''",
    ),
    Case(
        "an axis that no code reads",
        "inputs",
        (
            "size = 1000",
            '%%timer -t 1 --sweep "n=[10, 1000]" -o r\n# --- setup\nx = torch.randn(size)\n# --- exp\nx.exp()',
        ),
        "outcome = 'said' if 'axis n is not used by' in ' '.join(outputs[1].split()) else 'wrong'\nshows = ''",
    ),
    Case(
        "a list that is popped until it is empty",
        "inputs",
        ("numbers = list(range(100))", "%timer -t 1 numbers.pop()"),
        "said = 'IndexError' in outputs[1] and '`numbers` was emptied after 100 calls' in outputs[1]\n"
        "outcome = 'said' if said else 'wrong'\nshows = ''",
    ),
]
