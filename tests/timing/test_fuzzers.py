from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch.utils.benchmark import FuzzedTensor, Fuzzer, ParameterAlias

from torchbench_magic.errors import OptionError
from torchbench_magic.timing.fuzzers import OP_FUZZERS, FuzzedParameter, FuzzPoints, fuzz_points, op_fuzzer


def recipe(seed: int = 0, largest: int = 100_000) -> Fuzzer:
    """The fuzzer of torch's benchmark recipe, on smaller tensors."""
    return Fuzzer(
        parameters=[
            FuzzedParameter("k0", minval=1, maxval=10000, distribution="loguniform"),
            FuzzedParameter("k1", minval=1, maxval=10000, distribution="loguniform"),
        ],
        tensors=[
            FuzzedTensor("x", size=("k0", "k1"), min_elements=128, max_elements=largest, probability_contiguous=0.6)
        ],
        seed=seed,
    )


@pytest.fixture(autouse=True)
def own_generator() -> Any:
    with torch.random.fork_rng():
        yield


def test_points_have_the_tensors_and_parameters_that_torch_takes() -> None:
    points = fuzz_points("mine:8", {"mine": recipe()})
    drawn = list(recipe().take(8))
    for point, (tensors, properties, parameters) in zip(points, drawn, strict=True):
        torch.rand(3)  # what a measurement between two points would draw
        names = point.make()
        assert torch.equal(names["x"], tensors["x"])
        assert names["x"].stride() == tensors["x"].stride()
        assert {name: names[name] for name in parameters} == parameters
        shape = f"{parameters['k0']} x {parameters['k1']}"
        assert point.sub_label == (shape if properties["x"]["is_contiguous"] else f"{shape}, discontiguous")
    assert {str(p.sub_label).endswith("discontiguous") for p in points} == {True, False}


def test_drawing_leaves_torchs_generator_where_it_was() -> None:
    torch.manual_seed(11)
    expected = torch.rand(4)
    torch.manual_seed(11)
    for point in fuzz_points("unary:2", {}):
        point.make()
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.slow
def test_a_thousand_points_hold_no_tensors() -> None:
    made: list[weakref.ref[torch.Tensor]] = []
    points = fuzz_points("mine:1000", {"mine": recipe(largest=2000)})
    alive = 0
    for point in points:
        made.append(weakref.ref(point.make()["x"]))
        alive = max(alive, sum(ref() is not None for ref in made[-5:]))
    gc.collect()
    assert len({p.sub_label for p in points}) == len(points) == 1000
    assert alive <= 2
    assert sum(ref() is not None for ref in made) <= 1


def test_visiting_the_points_in_order_draws_each_once() -> None:
    calls = []

    class Counting(FuzzedTensor):
        def _make_tensor(self, params: Any, state: Any) -> Any:
            calls.append(params["n"])
            return super()._make_tensor(params, state)

    fuzzer = Fuzzer([FuzzedParameter("n", 1, 1000, "uniform")], [Counting("x", size=("n",))], seed=1)
    points = FuzzPoints(fuzzer, 20, with_parameters=True)
    sizes = [len(point.make()["x"]) for point in points]
    assert calls == sizes
    assert len(calls) == 20


def test_a_point_visited_again_is_as_it_was_whatever_the_body_did_to_it() -> None:
    points = fuzz_points("mine:5", {"mine": recipe()})
    first = points[1].make()["x"]
    clean = first.clone()
    first.zero_()
    later = points[4].make()["x"].clone()
    assert torch.equal(points[1].make()["x"], clean)
    assert torch.equal(points[4].make()["x"], later)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("kind", OP_FUZZERS)
def test_each_op_fuzzer_gives_its_tensors_as_names_and_a_label_of_its_own(kind: str) -> None:
    points = fuzz_points(f"{kind}:3", {})
    for point in points:
        names = point.make()
        assert names.keys() == ({"x", "y"} if "binary" in kind else {"x"})
        assert str(names["x"].shape[0]) in (point.sub_label or "")
        assert ("density=" in (point.sub_label or "")) == kind.startswith("sparse")
    assert len({p.sub_label for p in points}) == 3


def test_what_only_steers_the_draw_is_not_in_the_label() -> None:
    labels = " ".join(str(p.sub_label) for p in fuzz_points("binary:3", {}))
    assert not any(word in labels for word in ("k_any", "k_pow2", "step", "random_value", "dim="))


def test_which_tensor_is_discontiguous_is_said_where_there_are_two() -> None:
    pair = Fuzzer(
        [FuzzedParameter("n", 2, 9, "uniform"), FuzzedParameter("m", 2, 9, "uniform")],
        [FuzzedTensor("x", size=("n", "m")), FuzzedTensor("y", size=("n", "m"))],
        seed=0,
    )
    endings = set()
    for point in fuzz_points("pair:20", {"pair": pair}):
        names = point.make()
        scattered = [n for n in "xy" if not names[n].is_contiguous()]
        assert " and ".join(scattered) in str(point.sub_label)
        endings.add(str(point.sub_label).partition(", ")[2].partition(" disc")[0])
    assert {"x", "y", "x and y"} <= endings


def test_the_seed_chooses_the_points_and_the_default_repeats_them() -> None:
    def labels(seed: int | None) -> list[str | None]:
        return [p.sub_label for p in fuzz_points("unary:4", {}, seed=seed)]

    assert labels(None) == labels(None) == labels(0)
    assert labels(5) != labels(0)


def test_a_fuzzer_of_the_notebook_has_its_own_seed_unless_one_is_given() -> None:
    mine = recipe(seed=3)
    own = [p.sub_label for p in fuzz_points("mine:4", {"mine": mine})]
    assert own == [p.sub_label for p in fuzz_points("mine:4", {"mine": recipe(seed=9)}, seed=3)]
    assert own != [p.sub_label for p in fuzz_points("mine:4", {"mine": mine}, seed=4)]
    assert own == [p.sub_label for p in fuzz_points("mine:4", {"mine": mine})]


def test_parameters_beside_the_sizes_are_in_the_label() -> None:
    fuzzer = Fuzzer(
        [FuzzedParameter("n", 4, 4, "uniform"), FuzzedParameter("groups", 2, 2, "uniform")],
        [FuzzedTensor("x", size=("n", "n"))],
        seed=0,
    )
    (point,) = fuzz_points("f:1", {"f": fuzzer})
    assert str(point.sub_label).startswith("4 x 4, groups=2")
    assert point.make()["groups"] == 2


def test_points_that_look_alike_get_numbers() -> None:
    fuzzer = Fuzzer([FuzzedParameter("n", 4, 4, "uniform")], [FuzzedTensor("x", size=("n",))], seed=0)
    assert [p.sub_label for p in fuzz_points("f:3", {"f": fuzzer})] == ["4", "4 #2", "4 #3"]


def test_a_chosen_alias_reads_as_the_shape_it_made() -> None:
    fuzzer = Fuzzer(
        [FuzzedParameter("n", 7, 7, "uniform"), FuzzedParameter("m", distribution={ParameterAlias("n"): 1.0})],
        [FuzzedTensor("x", size=("n",)), FuzzedTensor("y", size=("m", "n"))],
        seed=0,
    )
    (point,) = fuzz_points("f:1", {"f": fuzzer})
    assert str(point.sub_label).startswith("x 7, y 7 x 7")


def test_ten_points_are_drawn_unless_a_count_is_given() -> None:
    assert len(fuzz_points("unary", {})) == 10
    assert len(fuzz_points("unary:3", {})) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "nothing is not defined; give binary"),
        ("thing:4", "thing is a int"),
        ("unary:0", "1 to 10000"),
        ("unary:ten", "1 to 10000"),
        ("unary:-1", "1 to 10000"),
        ("unary:", "1 to 10000"),
        ("unary:99999", "1 to 10000"),
    ],
)
def test_a_fuzzer_that_cannot_be_used_is_one_line_that_says_why(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        fuzz_points(text, {"thing": 4})
    assert "\n" not in str(caught.value)


def test_limits_that_nothing_satisfies_are_said_in_one_line() -> None:
    fuzzer = Fuzzer(
        [FuzzedParameter("n", 1, 10, "uniform")], [FuzzedTensor("x", size=("n",), min_elements=1000)], seed=0
    )
    with pytest.raises(OptionError, match="widen the limits"):
        fuzz_points("f:2", {"f": fuzzer})[0]


def test_an_error_in_the_users_own_constructor_is_the_users() -> None:
    def broken(**_: Any) -> torch.Tensor:
        raise RuntimeError("my own")

    fuzzer = Fuzzer([], [FuzzedTensor("x", size=(3,), tensor_constructor=broken)], seed=0)
    with pytest.raises(RuntimeError, match="my own"):
        fuzz_points("f:1", {"f": fuzzer})[0]


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("kind", OP_FUZZERS)
def test_the_op_fuzzers_make_their_tensors_on_the_device_asked_for(kind: str, cuda: bool) -> None:
    points = fuzz_points(f"{kind}:1", {}, cuda=cuda)
    assert {tensor._cuda for tensor in points._fuzzer._tensors} == {cuda}


def test_a_repaired_op_fuzzer_is_made_once() -> None:
    assert op_fuzzer("unary") is op_fuzzer("unary")
