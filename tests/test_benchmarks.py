"""The benchmarks measure what they say, and write whole files under fresh names or nothing."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # the benchmarks are not installed

from benchmarks import dense, harness, memory  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from mon_lib.networks import FullyConnectedMON  # noqa: E402
from mon_lib.splitting import PeacemanRachford  # noqa: E402


def test_calls_alternate_and_the_median_is_reported(monkeypatch):
    clock, order = iter(range(10_000)), []
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    out = harness.alternate({"a": lambda: order.append("a"), "b": lambda: (order.append("b"), next(clock))}, repeats=3, warmup=1)
    assert order == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert out["a"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert out["b"]["median"] == 2.0
    with pytest.raises(ValueError, match="repeats"):
        harness.alternate({"a": int}, repeats=0)


def test_results_are_never_overwritten(tmp_path):
    paths = [harness.save("dense", {"run": k}, tmp_path / "results") for k in range(3)]
    assert len(set(paths)) == 3
    assert [json.loads(path.read_text())["run"] for path in paths] == [0, 1, 2]
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == sorted(path.name for path in paths)


def test_a_result_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    with pytest.raises(ValueError):
        harness.save("dense", {"seconds": float("nan")}, tmp_path)

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        harness.save("dense", {}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_topic_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["dence"])
    assert "dence" in capsys.readouterr().err


def test_the_textbook_loop_is_a_fair_rival():
    """Run to the end it has the library's gradient, so the comparison is between two ways to the same numbers."""
    torch.manual_seed(0)
    template = FullyConnectedMON(in_features=12, units=9, classes=4, solver=PeacemanRachford(tol=1e-11)).double()
    dense.stretch(template.equilibrium.operator, 3.5)
    assert template.equilibrium.operator.lipschitz() == pytest.approx(3.5, rel=1e-6)
    x, y = torch.randn(5, 12, dtype=torch.float64), torch.randint(4, (5,))
    textbook = dense.TextbookLoop(template, 0.4, 1e-12)
    torch.testing.assert_close(_gradients(textbook, x, y), _gradients(template, x, y), rtol=1e-7, atol=1e-10)
    assert textbook.steps > 5 and textbook.backward_steps > 5


def _gradients(model, x, y):
    model.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    return {name.removeprefix("equilibrium."): p.grad.clone() for name, p in model.named_parameters()}


def test_peak_memory_sees_unrolling_and_not_the_implicit_steps():
    implicit = memory._child(kind="implicit", n=64, batch=1024, alpha=0.05, device="cpu")
    unrolled = memory._child(kind="unrolled", n=64, batch=1024, alpha=0.05, device="cpu", steps=implicit["steps"])
    assert implicit["steps"] > 30
    assert unrolled["bytes"] > implicit["steps"] * 4 * 64 * 1024  # at least one state a step
    assert implicit["bytes"] < 0.3 * unrolled["bytes"]
