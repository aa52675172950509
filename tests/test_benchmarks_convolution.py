"""The convolutional benchmarks: the textbook is right, what is compared agrees, and every table can be made."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mon_lib import Equilibrium, operators, prox
from mon_lib.splitting import PeacemanRachford
from tests.problems import F64

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # the benchmarks are not installed

from benchmarks import contest, convolution, gpu, iteration, layers, memory, multitier, textbook  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402

CPU = torch.device("cpu")
ONE = "3 at 6x6"
OPERATORS = {
    "one": lambda: operators.Convolution(4, (6, 7), m=0.6, dtype=F64),
    "one-5x5": lambda: operators.Convolution(2, (9, 6), kernel_size=5, dtype=F64),
    "tiers": lambda: operators.MultiTier((2, 3), (6, 8), m=0.6, dtype=F64),
    "tiers-border": lambda: operators.MultiTier((2, 3, 2), (10, 14), border=1, dtype=F64),
    "tiers-1x1": lambda: operators.MultiTier((2, 3, 2), (8, 4), kernel_size=1, dtype=F64),
    "tiers-stride-3": lambda: operators.MultiTier((2, 1), (15, 9), kernel_size=5, border=3, stride=3, dtype=F64),
}


@pytest.mark.parametrize("bordered", [False, True], ids=["whole", "bordered"])
@pytest.mark.parametrize("name", OPERATORS)
def test_the_textbook_has_the_librarys_equilibrium_and_gradients(name, bordered):
    torch.manual_seed(0)
    W = OPERATORS[name]()
    with torch.no_grad():
        W.h.mul_(2.0)
    activation = prox.ReLU()
    if bordered:
        inside = W.interior(1) if isinstance(W, operators.MultiTier) else None
        activation = prox.Border(activation, 1) if inside is None else prox.Masked(activation, inside)
    layer = Equilibrium(W, torch.nn.Identity(), activation, PeacemanRachford(tol=1e-11, max_steps=5_000))
    rival = textbook.Textbook(layer, 0.3, 1e-12)
    x = torch.randn(3, *W.state_shape, dtype=F64, requires_grad=True)
    v = torch.randn(3, *W.state_shape, dtype=F64)
    ours, theirs = layer(x), rival(x)
    if bordered:
        assert 0 < int(rival.mask.sum()) < rival.mask.numel() and not bool((ours * (1 - rival.mask)).any())
    torch.testing.assert_close(theirs, ours, rtol=1e-8, atol=1e-8)
    for a, b in zip(*(torch.autograd.grad(z, [x, *W.parameters()], v) for z in (theirs, ours)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    assert rival.steps > 10 and rival.backward_steps > 10


def test_the_textbook_stops_once_the_batch_stands_still_and_not_before():
    layer = layers.build(ONE, "hard")
    x, v = layers.inputs(layer, 4)
    loose, tight = (textbook.Textbook(layer, 0.25, tol, backward_tol=tol / 10) for tol in (1e-1, 1e-4))
    for model in (loose, tight):
        layers.one_pass(model, x, v)
    assert loose.steps < tight.steps and loose.backward_steps < tight.backward_steps
    bias = layer.injection(x).detach()
    changes = [change for _, (_, change) in zip(range(tight.steps), tight.ahead(tight.form.inverse(0.25), bias), strict=False)]
    assert changes[-1] <= 1e-4 < min(changes[:-1])
    short = textbook.Textbook(layer, 0.25, 1e-12, max_steps=7)
    layers.one_pass(short, x, v)
    assert (short.steps, short.backward_steps) == (7, 7)


@pytest.fixture
def in_process(monkeypatch):
    """No child processes: what would run in one runs here, and what it prints as JSON is still only that."""

    def child(module, arguments, environment):
        target = importlib.import_module(module)
        given = json.loads(json.dumps(arguments))
        call = target.race if module == "benchmarks.contest" else target.measure_layer
        return json.loads(json.dumps(call(**given), allow_nan=False))

    monkeypatch.setattr(contest, "child", child)
    monkeypatch.setattr(memory, "child", child)
    monkeypatch.setattr(convolution, "HALVINGS", (1.0, 0.25))


def test_a_contest_measures_errors_and_times_both(in_process, capsys):
    nothing = {ONE: {kind: {"bytes": 0} for kind in ("ours", "textbook")}}
    (entry,) = contest.contest((ONE,), [("hard", 1e-3)], CPU, 6, 0.05, nothing)
    assert entry["tol_used"] == 1e-3 and set(entry["races"]) == {"default allocator", "tuned allocator"}
    assert set(entry["races"]["tuned allocator"]["rows"]) == {"ours, alpha auto", "textbook"}
    assert set(entry["errors"]) == set(entry["contenders"]) == set(entry["races"]["default allocator"]["rows"])
    errors = entry["errors"]
    for part in ("z", "backward"):
        assert 0.0 < errors["ours, alpha auto"][part] < 1e-3
        assert errors["textbook, as accurate"][part] <= errors["ours, alpha by halving"][part]
        assert errors["textbook"][part] > errors["textbook, as accurate"][part]  # its tol is a change, no error
    assert all(entry["contenders"][name]["alpha"] == 0.125 for name in list(errors)[1:])
    assert "textbook, as accurate" in capsys.readouterr().out


def test_a_tol_that_float32_cannot_certify_is_loosened_and_said(in_process, capsys):
    layer = layers.build("(2, 3) at 6x6", "hard")
    assert layer.operator.lipschitz() > 50
    nothing = {"(2, 3) at 6x6": {kind: {"bytes": 0} for kind in ("ours", "textbook")}}
    (entry,) = contest.contest(("(2, 3) at 6x6",), [("hard", 1e-5)], CPU, 4, 0.05, nothing)
    assert entry["tol_used"] == pytest.approx(1e-4)
    assert "float32 cannot certify" in capsys.readouterr().out


def test_nothing_is_timed_where_the_two_disagree(monkeypatch):
    inverse = textbook.TextbookConvolution.inverse
    monkeypatch.setattr(textbook.TextbookConvolution, "inverse", lambda self, alpha: inverse(self, 1.2 * alpha))
    with pytest.raises(RuntimeError, match=r"textbook, as accurate.*off by"):
        contest.plan(ONE, "initial", 1e-3, "cpu", 4)
    with pytest.raises(ValueError, match="soft"):
        layers.build(ONE, "soft")


def test_a_child_has_the_allocator_it_is_given_and_reports_its_failure():
    given = {"model": ONE, "weights": "hard", "contenders": {"ours": {"alpha": 0.25, "tol": 1e-3}}}
    run = layers.child("benchmarks.contest", {**given, "device": "cpu", "batch": 2, "seconds": 0.0}, layers.TUNED_ALLOCATOR)
    assert run["rounds"] == 1 and run["rows"]["ours"]["median"] > 0 and min(run["rows"]["ours"]["steps"]) > 5
    with pytest.raises(RuntimeError, match="no such model"):
        layers.child("benchmarks.contest", {**given, "model": "no such model", "device": "cpu", "batch": 2, "seconds": 0.0}, {})


def test_an_iteration_is_timed_by_solves_that_take_the_steps_they_are_told():
    layer = layers.build(ONE, "hard")
    bias = layer.injection(layers.inputs(layer, 4)[0]).detach()
    iteration.solves(layer.operator, bias, layer.activation, (3,))[3]()
    with pytest.raises(RuntimeError, match="9000"):
        iteration.solves(layer.operator, bias, layer.activation, (9_000,))[9_000]()
    assert iteration.cost({4: {"median": 1.0}, 12: {"median": 5.0}}, (4, 12)) == 0.5
    assert iteration.cost({4: {"median": 1.0}, 12: {"median": 0.9}}, (4, 12)) is None


def test_the_bare_step_is_the_step_of_the_solver():
    layer = layers.build(ONE, "hard")
    u = layer.injection(layers.inputs(layer, 4)[0]).detach()
    z = layer.activation.prox(u, iteration.ALPHA)
    resolvent = layer.operator.resolvent(iteration.ALPHA)
    expected = 2.0 * resolvent(2.0 * z - u + iteration.ALPHA * u) - (2.0 * z - u)
    torch.testing.assert_close(iteration.bare_step(layer.operator, u, layer.activation)(), expected, rtol=1e-5, atol=1e-5)


def test_exponents_are_slopes_of_logarithms(monkeypatch, capsys):
    assert iteration.exponent([1, 2, 8], [3, 12, 192]) == pytest.approx(2.0)
    assert iteration.exponent([4], [1.0]) is None
    monkeypatch.setattr(iteration, "_at", lambda device, counts, repeats, n, s, b: 1e-6 * n**1.5 * s**2 * b if n != 24 else None)
    out = iteration.scaling(True, CPU)
    assert {axis: fit["measured"] for axis, fit in out["exponents"].items()} == pytest.approx({"n": 1.5, "s": 2.0, "b": 1.0})
    assert out["exponents"]["n"]["points"] == 2  # noise hid one
    assert 1.0 < out["exponents"]["n"]["predicted"] < 2.0 < out["exponents"]["s"]["predicted"] < 2.5


def test_a_stopped_pass_takes_one_step_and_its_peak_is_that_of_many():
    common = {"model": "16 at 18x18", "batch": 64, "device": "cpu"}
    one = memory._child(kind="stopped", alpha=0.25, **common)
    many = memory._child(kind="ours", alpha=0.05, **common)
    assert one["steps"] == 1 and many["steps"] > 30
    assert 4 * 16 * 18 * 18 * 64 < one["bytes"] <= many["bytes"] * 1.2
    assert many["bytes"] < 1.5 * one["bytes"]


def test_the_peak_of_a_textbook_is_measured():
    peak = memory.measure_layer("textbook", ONE, 8, 0.25, "cpu")
    assert peak["steps"] > 5 and peak["bytes"] >= 0


def test_every_table_of_one_convolution_is_made(in_process, monkeypatch, capsys):
    monkeypatch.setattr(convolution, "QUICK", ((ONE,), 4))
    monkeypatch.setattr(iteration, "_at", lambda device, counts, repeats, n, s, b: 1e-6 * n * s * b)
    out = convolution.run(quick=True, device=CPU)
    assert set(out) == {"iteration", "peaks", "passes", "steps", "scaling", "memory"}
    json.dumps(out, allow_nan=False)
    assert [entry["layer"].split(", ")[-1] for entry in out["steps"]][:2] == ["initial", "hard"]
    assert out["steps"][0]["auto"]["forward"] <= out["steps"][0]["halving"]["forward"]
    assert "trained on" in out["steps"][2]["layer"] and "over channels_last" in capsys.readouterr().out


def test_every_table_of_several_tiers_is_made(in_process, monkeypatch, capsys):
    monkeypatch.setattr(multitier, "QUICK", ("(2, 3) at 6x6", 4))
    out = multitier.run(quick=True, device=CPU)
    json.dumps(out, allow_nan=False)
    assert set(out["iteration"]["seconds"]) >= {"the bare step", "nn.Conv2d 3x3, contiguous"}
    assert out["memory"]["one_step"]["steps"] == 1


def test_training_moves_the_layer_whose_steps_are_counted():
    before, after = (convolution.trained(2, k, CPU).operator for k in (0, 2))
    assert not torch.equal(before.A, after.A) and not torch.equal(before.g_raw, after.g_raw)


def test_without_cuda_the_gpu_benchmark_refuses_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 1 and gpu.main(["--device", "cpu"]) == 1
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 2 and all("no CUDA here" in line for line in err)
    with pytest.raises(RuntimeError, match="CUDA"):
        gpu.run(quick=False, device=CPU)


def test_the_gpu_benchmark_runs_dry_on_a_processor(in_process, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu, "DRY", {ONE: 4})
    monkeypatch.setattr(iteration, "_at", lambda device, counts, repeats, n, s, b: 1e-6 * n * s * b)
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    assert gpu.main(["--device", "cpu", "--quick", "--save", str(tmp_path)]) == 0
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
    (path,) = tmp_path.iterdir()
    saved = json.loads(path.read_text())
    assert saved["topic"] == "gpu" and set(saved["iteration"]) == {"float32", "tf32"}
    rows = {row["format"]: row for row in saved["formats"]}
    assert set(rows) >= {"float32", "TF32", "bf16 autocast around", "TF32 and bf16 autocast"}
    assert all(row["of_the_solve"] <= row["bound"] <= 1e-3 for row in rows.values())
    # The injection rounds to bfloat16 and so z* moves; the solve for that bias is as good as ever.
    assert rows["float32"]["z"] < 1e-3 < rows["bf16 autocast around"]["z"]
    assert saved["synchronisations"][0]["an_iteration"] is None


def test_switches_of_the_solver_are_found_and_passed_on(monkeypatch):
    assert all(isinstance(getattr(PeacemanRachford(**{name: True}), name), bool) for name in gpu.fast_paths())
    assert "alpha" not in gpu.fast_paths() and "check_every" not in gpu.fast_paths()


def test_the_new_topics_are_known(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(convolution, "run", lambda quick, device: asked.append(("convolution", quick)) or {})
    monkeypatch.setattr(multitier, "run", lambda quick, device: asked.append(("multitier", quick)) or {})
    assert main(["convolution", "multitier", "--quick", "--device", "cpu"]) == 0
    assert asked == [("convolution", True), ("multitier", True)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the settings are those of glibc")
def test_the_tuned_allocator_keeps_large_blocks():
    """Counted in page faults: a block of 48 MB costs one a page whenever it is new, and none when it was kept."""
    code = (
        "import resource; faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "b'x' * (48 << 20); before = faults()\n"
        "for _ in range(10): b'x' * (48 << 20)\n"
        "print(faults() - before)"
    )

    def faults(settings):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
        done = subprocess.run([sys.executable, "-c", code], env={**environment, **settings}, capture_output=True, check=True)
        return int(done.stdout)

    assert faults(layers.TUNED_ALLOCATOR) < 0.1 * faults({})
