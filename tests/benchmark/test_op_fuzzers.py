from __future__ import annotations

import importlib
import inspect

import pytest
import torch
from torch.utils.benchmark.utils import fuzzer as torch_fuzzer
from torchbench_magic.benchmark.op_fuzzers.binary import BinaryOpFuzzer
from torchbench_magic.benchmark.op_fuzzers.sparse_binary import BinaryOpSparseFuzzer
from torchbench_magic.benchmark.op_fuzzers.sparse_unary import UnaryOpSparseFuzzer
from torchbench_magic.benchmark.op_fuzzers.spectral import SpectralOpFuzzer
from torchbench_magic.benchmark.op_fuzzers.unary import UnaryOpFuzzer

from torchbench_magic import benchmark

FUZZERS = [BinaryOpFuzzer, UnaryOpFuzzer, SpectralOpFuzzer, BinaryOpSparseFuzzer, UnaryOpSparseFuzzer]
TENSORS = {"Binary": {"x", "y"}, "Unary": {"x"}, "Spectral": {"x"}}


def torch_class(ours: type) -> type:
    module = ours.__module__.replace("torchbench_magic.benchmark", "torch.utils.benchmark")
    return getattr(importlib.import_module(module), ours.__name__)


@pytest.fixture
def torch_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch without its check of distributions, so that its own fuzzers can be asked what they would draw."""
    monkeypatch.setattr(torch_fuzzer.FuzzedParameter, "_check_distribution", lambda self, distribution: distribution)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("ours", FUZZERS)
def test_an_op_fuzzer_draws_what_torchs_own_would_draw(ours: type, torch_mended: None) -> None:
    with torch.random.fork_rng():
        mine = list(ours(seed=3).take(2))
    with torch.random.fork_rng():
        theirs = list(torch_class(ours)(seed=3).take(2))
    for (tensors, _, parameters), (their_tensors, _, their_parameters) in zip(mine, theirs, strict=True):
        assert parameters == their_parameters
        assert tensors.keys() == their_tensors.keys() == TENSORS[ours.__name__.partition("Op")[0]]
        for name, tensor in tensors.items():
            other = their_tensors[name]
            assert tensor.layout == other.layout
            assert tensor.shape == other.shape
            if tensor.layout is torch.strided:
                assert tensor.stride() == other.stride()
                assert torch.equal(tensor, other)
            else:
                assert torch.equal(tensor.coalesce().values(), other.coalesce().values())


@pytest.mark.parametrize("ours", FUZZERS)
def test_an_op_fuzzer_has_torchs_signature_and_is_one_of_torchs(ours: type) -> None:
    theirs = torch_class(ours)
    assert issubclass(ours, theirs)
    assert inspect.signature(ours) == inspect.signature(theirs)


@pytest.mark.parametrize("ours", FUZZERS)
def test_an_op_fuzzer_can_be_made_where_torch_is_left_as_it_is(ours: type) -> None:
    before = vars(importlib.import_module(torch_class(ours).__module__)).copy()
    ours(seed=0)
    assert vars(importlib.import_module(torch_class(ours).__module__)) == before


def test_the_dtype_asked_for_is_the_dtype_drawn() -> None:
    with torch.random.fork_rng():
        tensors, properties, _ = next(iter(UnaryOpFuzzer(seed=0, dtype=torch.int32).take(1)))
    assert tensors["x"].dtype == torch.int32
    assert properties["x"]["dtype"] == "torch.int32"


def test_a_parameter_takes_probabilities_that_sum_to_one() -> None:
    import numpy as np

    parameter = benchmark.FuzzedParameter("k", distribution={1: 0.25, 8: 0.75})
    drawn = [parameter.sample(np.random.RandomState(seed)) for seed in range(400)]
    assert set(drawn) == {1, 8}
    assert 250 < drawn.count(8) < 350


@pytest.mark.parametrize(
    ("distribution", "limits", "message"),
    [
        ({1: 0.5, 2: 0.2}, {}, "not normalized"),
        ({1: 1.5, 2: -0.5}, {}, "negative"),
        ({1: 1.0}, {"minval": 1}, "minval"),
        ("normal", {"minval": 1, "maxval": 2}, "Unknown distribution"),
    ],
)
def test_a_distribution_that_is_none_is_refused_as_torch_documents(distribution, limits, message) -> None:
    with pytest.raises(AssertionError, match=message):
        benchmark.FuzzedParameter("k", distribution=distribution, **limits)


def test_aliases_resolve_to_the_parameter_they_name() -> None:
    fuzzer = benchmark.Fuzzer(
        parameters=[
            benchmark.FuzzedParameter("n", 4, 1024, distribution="uniform"),
            benchmark.FuzzedParameter("m", distribution={1: 0.5, benchmark.ParameterAlias("n"): 0.5}),
        ],
        tensors=[benchmark.FuzzedTensor("x", size=("n",)), benchmark.FuzzedTensor("y", size=("m",))],
        seed=0,
    )
    with torch.random.fork_rng():
        drawn = [parameters for _, _, parameters in fuzzer.take(20)]
    assert {p["m"] == p["n"] for p in drawn} == {True, False}
    assert all(p["m"] in (1, p["n"]) for p in drawn)
