"""The benchmarks of reflections: every rival computes what the library computes, goals are judged, every table is made."""

from __future__ import annotations

import json
import math
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch

from mon_lib.reflections import AuxiliaryReflection, HouseholderProduct
from tests.problems import F64

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # the benchmarks are not installed

from benchmarks import gpu, reflection_inverse, reflection_layers, reflection_memory, reflection_rivals, reflections  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from benchmarks.reflection_goal import Goal, judge  # noqa: E402

CPU = torch.device("cpu")


def close(a, b, tol=1e-11):
    torch.testing.assert_close(a, b, rtol=tol, atol=tol)


def invertible(d, kappa):
    return reflection_inverse.invertible(d, kappa).double().requires_grad_(False)


def samples(n, d, seed=3):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=F64)


def test_the_loop_over_mirrors_is_the_product_with_its_gradients():
    loop, product = reflection_rivals.MirrorLoop(7, 5).double(), HouseholderProduct(7, 5).double()
    with torch.no_grad():
        product.vectors.copy_(loop.vectors)
    x = samples(4, 7).requires_grad_()
    ours, theirs = product(x), loop(x)
    close(theirs, ours)
    v = samples(4, 7, seed=5)
    close(torch.autograd.grad(theirs, [x, loop.vectors], v), torch.autograd.grad(ours, [x, product.vectors], v))


@pytest.mark.parametrize("kind", ["cayley", "matrix_exp", "householder"])
def test_a_parametrized_layer_is_a_product_of_reflections(kind):
    torch.manual_seed(0)
    layer = reflection_rivals.orthogonal(6, kind).double()
    U, x = layer.weight.detach(), samples(3, 6)
    close(U @ U.mT, torch.eye(6, dtype=F64))
    assert float((U - torch.eye(6)).abs().max()) > 0.1
    close(HouseholderProduct.from_orthogonal(U)(x), layer(x))
    close(AuxiliaryReflection.from_orthogonal(U)(x), layer(x))


def test_layers_of_packages_that_are_not_there_are_none():
    available = reflection_rivals.INSTALLED_APART
    assert set(available) == {"geotorch, orthogonal", "torch-householder"}
    for make in available.values():
        if make is not None:
            W = make(5).double()(torch.eye(5, dtype=F64))
            close(W @ W.mT, torch.eye(5, dtype=F64), 1e-6)


def test_every_transition_is_orthogonal_and_its_own_layer():
    torch.manual_seed(0)
    h, inputs = samples(3, 6), samples(2 * 3, 6, 4).view(2, 3, 6)
    ways = reflection_layers.transitions(6)
    for name, (module, prepare) in ways.items():
        layer = module.double()
        expected = h
        for u in inputs.unbind():
            expected = layer(expected) + u
        close(reflection_layers.roll(prepare, h, inputs), expected)
        if name != reflection_layers.FREE:
            close(layer(h).norm(dim=-1), h.norm(dim=-1))


@pytest.mark.parametrize("kappa", [1.2, 1.9])
def test_the_jacobian_and_the_determinant_of_the_rivals_are_the_librarys(kappa):
    layer, x = invertible(5, kappa), samples(6, 5)
    W = layer.to_dense()
    J, by_autograd = reflection_rivals.jacobian(W, x), reflection_rivals.jacobian_by_autograd(W, x)
    close(J, by_autograd)
    general = AuxiliaryReflection(5).double()
    with torch.no_grad():
        general.weight.copy_(W)
    close(J, general.jacobian(x))
    y, ladj = layer.forward_and_ladj(x.mT[None])  # the vectors of an image lie along dimension 1
    close(y[0].mT, reflection_rivals.auxiliary(W, x))
    close(reflection_rivals.log_det(W, x), ladj.flatten())
    assert float(ladj.abs().max()) > 1e-3


@pytest.mark.parametrize("solve", [False, True], ids=["inverse", "solve"])
def test_newton_ends_where_the_scalar_equation_does(solve):
    layer, y = invertible(6, 1.9), samples(10, 6)
    W, expected = layer.to_dense(), layer.inverse(y.mT[None])[0].mT
    close(reflection_rivals.newton(W, y, 12, 4, solve=solve), expected)
    assert float((reflection_rivals.newton(W, y, 2, 4, solve=solve) - expected).abs().max()) > 1e-6
    close(reflection_rivals.newton_one_by_one(W, y, 3), reflection_rivals.newton(W, y, 3, 100))


def test_newton_gets_no_step_too_many():
    W, exact = invertible(6, 1.9).to_dense(), samples(50, 6)
    y = reflection_rivals.auxiliary(W, exact)
    steps = reflection_inverse.as_accurate(W, y, exact, 1e-6)
    errors = [reflection_inverse._error(x, exact) for x in islice(reflection_rivals.newton_steps(W, y), steps)]
    assert len(errors) > 2 and errors[-1] <= 1e-6 < min(errors[:-1])
    best = reflection_inverse.as_accurate(W, y, exact, 0.0)
    assert steps < best <= reflection_inverse.MAX_STEPS


def test_goals_are_judged_both_ways(capsys):
    goals = judge([Goal("a", 1.2, at_most=1.25), Goal("b", 4.0, at_least=5.0), Goal("c", math.nan, at_most=1.0)])
    assert [goal["met"] for goal in goals] == [True, False, False]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "goal met: a 1.2, at most 1.25" and lines[1] == "goal MISSED: b 4, at least 5"
    with pytest.raises(ValueError, match="give one"):
        Goal("d", 1.0)
    with pytest.raises(ValueError, match="give one"):
        Goal("d", 1.0, at_most=1.0, at_least=1.0)


def test_weights_that_would_make_the_inverse_easy_are_refused(monkeypatch):
    assert 1.0 + 0.8 * 0.9 < float(reflection_inverse.invertible(48, 1.9).condition()) <= 1.9 + 1e-5
    monkeypatch.setattr(torch.nn.init, "normal_", torch.nn.init.zeros_)
    with pytest.raises(RuntimeError, match="condition number"):
        reflection_inverse.invertible(48, 1.9)


@pytest.fixture
def in_process(monkeypatch):
    def child(module, cases, environment):
        assert module == "benchmarks.reflection_memory" and environment
        return json.loads(json.dumps([reflection_memory.measure(**case) for case in cases], allow_nan=False))

    monkeypatch.setattr(reflection_memory, "child", child)
    monkeypatch.setattr(reflections, "QUICK", reflections.DRY)


def test_every_table_is_made_and_says_what_is_not_installed(in_process, capsys):
    out = reflections.run(quick=True, device=CPU)
    json.dumps(out, allow_nan=False)
    (batch,) = out["layers"]["batches"].values()
    absent = {name for name, make in reflection_rivals.INSTALLED_APART.items() if make is None}
    assert {name for name, row in batch.items() if row == "not installed"} == absent
    assert all(row["over_auxiliary"] > 0 for name, row in batch.items() if name not in absent)
    assert out["inverses"][0]["contenders"]["scalar equation"]["error"] < 1e-4
    printed = capsys.readouterr().out
    assert ("not installed" in printed) == bool(absent)
    goals = sum(line.startswith("goal ") for line in printed.splitlines())
    assert goals == 7 and f"of {goals} goals met" in printed


def test_peaks_are_measured_in_a_process_of_their_own():
    """Newton with every Jacobian at once holds at least one a pixel; the scalar equation never does."""
    common = {"d": 32, "kappa": 1.9, "side": 32, "images": 8, "device": "cpu"}
    newton, ours = reflection_memory._apart([{"kind": kind, **common} for kind in ("newton", "inverse")])
    assert newton["pixels"] == ours["pixels"] == 8 * 32 * 32
    assert newton["bytes"] > 4 * 32 * 32 * newton["pixels"] > 2 * ours["bytes"] > 0


def test_the_topic_is_known_and_the_gpu_benchmark_has_it(monkeypatch):
    asked = []
    monkeypatch.setattr(reflections, "run", lambda quick, device: asked.append((quick, device.type)) or {})
    assert main(["reflections", "--quick", "--device", "cpu"]) == 0
    assert asked == [(True, "cpu")]
    assert gpu.reflection_sizes(quick=True, device=CPU).items() <= reflections.DRY.items()
    assert gpu.reflection_sizes(quick=False, device=torch.device("cuda")) is reflections.FULL
