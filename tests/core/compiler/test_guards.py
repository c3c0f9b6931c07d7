"""A guard that failed, in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from torchbench_magic.process.dynamo import change_of, guard_text, value_after

RECORDED = (  # torch 2.13's own texts
    ("0/0: n == 1        # y = x * n  # cell.py:14 in f\nUser stack trace:\n  File", "n == 1"),
    ("0/1: tensor 'x' rank mismatch. expected 1, actual 2", "tensor 'x' rank mismatch. expected 1, actual 2"),
    (
        "0/0: ___check_type_id(l, 139985), type=<class 'tuple'>  # for e in l  # c.py:53 in g (HINT: type tuple)",
        "___check_type_id(l, 139985), type=<class 'tuple'>",
    ),
    ("", ""),
)


@pytest.mark.parametrize(("reason", "expected"), RECORDED)
def test_the_guard_is_told_from_what_torch_writes_round_it(reason: str, expected: str) -> None:
    assert guard_text(reason) == expected


KEYS = (
    "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, AutogradCPU),"
    " actual DispatchKeySet(Meta, AutogradMeta)"
)
WORDS = (
    ("n == 1", "2", ("n", "1", "2", "`n` was 1, now 2")),
    ("f == 1.0", "2.0", ("f", "1.0", "2.0", "`f` was 1.0, now 2.0")),
    (
        "BACKEND_MATCH failure: torch.compile detected different backend callables. Cached backend: <b at 0x7f>.",
        "",
        ("", "", "", "it was compiled for another backend; each new backend function is another one"),
    ),
    ("h(f) != <function g at 0x7f12>", "", ("", "", "", "the guard `h(f) != <function g>` failed")),
    ("n == 1", "", ("n", "1", "", "`n` is no longer 1")),
    ("G['scale'] == 2.0", "4.0", ("scale", "2.0", "4.0", "`scale` was 2.0, now 4.0")),
    ("self._modules['bn'].training == True", "False", ("self.bn.training", "True", "False", None)),
    ("dd is None", "a dict", ("dd", "None", "a dict", "`dd` was None, now a dict")),
    ("len(l) == 2", "3", ("l", "2", "3", "`l` was of length 2, now 3")),
    ("___check_type_id(n, 1), type=<class 'int'>", "float", ("n", "int", "float", "`n` was of type int, now float")),
    ("___check_obj_id(o, 1)", "", ("o", "", "", "`o` is another object")),
    (
        "___check_obj_id(___stack0, 1), type=<class 'builtin_function_or_method'>",
        "list.append",
        ("", "", "", "a value (`list.append`) kept across the graph break is a different object"),
    ),
    (
        "___check_obj_id(___stack0, 1)",
        "",
        ("", "", "", "a value kept across the graph break is a different object"),
    ),
    (
        "Cache line invalidated because L['___stack0'] got deallocated",
        "list.append",
        ("", "", "", "a value (`list.append`) kept across the graph break is a different object"),
    ),
    ("Cache line invalidated because L['o'] got deallocated", "", ("o", "", "", "`o` is another object")),
    ("___stack1 == 2", "3", ("", "2", "3", "a value kept across the graph break was 2, now 3")),
    (
        "tensor '___stack0' size mismatch at index 0. expected 4, actual 9",
        "",
        ("", "4", "9", "a value kept across the graph break had size 4 in dimension 0, now 9"),
    ),
    ("tensor 'x' dtype mismatch. expected Float, actual Double", "", ("x", "float32", "float64", None)),
    ("tensor 'x' rank mismatch. expected 1, actual 2", "", ("x", "1", "2", "`x` had 1 dimension, now 2")),
    (
        "tensor 'x' size mismatch at index 0. expected 4, actual 9",
        "",
        ("x", "4", "9", "`x` had size 4 in dimension 0, now 9"),
    ),
    (
        "tensor 'x' stride mismatch at index 0. expected 1, actual 2",
        "",
        ("x", "1", "2", "`x` had stride 1 in dimension 0, now 2"),
    ),
    (
        "tensor 'x' requires_grad mismatch. expected requires_grad=0",
        "",
        ("x.requires_grad", "False", "True", "`x.requires_grad` was False, now True"),
    ),
    (
        KEYS,
        "",
        ("x", "cpu", "meta", "`x` was on cpu, now on meta"),
    ),
    (
        "expected type of 'self._modules['l']._parameters['bias']' to be a tensor type, ' but found <class 'NoneType'>",
        "",
        ("self.l.bias", "a tensor", "None", "`self.l.bias` was a tensor, now None"),
    ),
    ("GLOBAL_STATE changed: num_threads ", "", ("", "", "", "the number of threads changed")),
    ("GLOBAL_STATE changed: autocast(cpu)_enabled ", "", ("", "", "", "autocast(cpu) enabled changed")),
    ("2 <= x.size()[0]", "", ("", "", "", "the guard `2 <= x.size()[0]` failed")),
    ("", "", ("", "", "", "torch does not say why")),
)


@pytest.mark.parametrize(("guard", "after", "expected"), WORDS)
def test_a_guard_says_which_argument_changed_from_what_to_what(
    guard: str, after: str, expected: tuple[Any, ...]
) -> None:
    change = change_of(guard, after)
    assert (change.argument, change.before, change.after) == expected[:3]
    if expected[3] is not None:
        assert change.text == expected[3]


class Watched:
    """Its attributes are looked up without a word from its own code."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("code of the user's ran")

    @property
    def asked(self) -> int:
        raise AssertionError("code of the user's ran")


def test_what_a_variable_is_now_is_read_without_running_the_users_code() -> None:
    watched = Watched()
    watched.__dict__["k"] = 3
    names = {"n": 2, "o": watched, "d": {"k": 1.5}, "l": [1, 2, 3], "x": object(), "long": "a" * 99}
    names["self"] = SimpleNamespace(_modules={"bn": SimpleNamespace(training=False)})
    read = lambda guard: value_after(guard, names, {"scale": 4})
    assert read("n == 1") == "2"
    assert read("o.k == 1") == "3"
    assert read("o.asked == 1") == ""
    assert read("d['k'] == 1.0") == "1.5"
    assert read("len(l) == 2") == "3"
    assert read("G['scale'] == 2") == "4"
    assert read("self._modules['bn'].training == True") == "False"
    assert read("___check_type_id(l, 5), type=<class 'tuple'>") == "list"
    assert read("x is None") == "a object"
    names |= {"___stack0": [].append, "___stack1": object()}
    assert read("___check_obj_id(___stack0, 5), type=<class 'builtin_function_or_method'>") == "list.append"
    assert read("Cache line invalidated because L['___stack0'] got deallocated") == "list.append"
    assert read("___check_obj_id(___stack1, 5)") == read("___check_obj_id(d, 5)") == ""
    assert read("gone == 1") == ""
    assert read("f(n) == 1") == ""
    assert len(read("long == 'b'")) < 50
    assert read("2 <= n") == ""
