"""Experiments: each entry builds its model, a run leaves one whole file or none, and nothing is lost, mixed or overwritten."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

import ledger
from mon_lib import data, experiments, networks, training
from mon_lib.experiments import EXPERIMENTS, Experiment, Recipe, _files, _recipes
from mon_lib.experiments.__main__ import main
from mon_lib.experiments._unfinished import Unfinished
from mon_lib.flows import Glow
from mon_lib.splitting import PeacemanRachford

ROOT = Path(__file__).resolve().parent.parent
QUICK = Recipe("mnist-5k", 3, 1e-2, training.StepDecay(2), batch_size=25, train=100, test=50)
PAPER = replace(QUICK, epochs=4, augmented=True)
TINY = Experiment("tiny", "MON-TAB1", "Does it run?", partial(networks.FullyConnectedMON, units=6), 4852, PAPER, QUICK, 0.987)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A registry with one small experiment more, and a folder of results that is not the book's."""
    monkeypatch.setitem(EXPERIMENTS, "tiny", TINY)
    monkeypatch.setenv("MON_RESULTS", str(tmp_path / "results"))
    return tmp_path / "results"


def files(folder):
    return sorted(path.name for path in folder.glob("*"))


def without_time(result):
    """A result without what differs between two runs of the same thing."""
    times = ("date", "seconds", "file", "interrupted")
    history = [{key: value for key, value in epoch.items() if key not in times} for epoch in result["history"]]
    return {key: value for key, value in result.items() if key not in times} | {"history": history}


class Interrupt:
    """Raises an error at the n-th step of the optimiser, from then on never."""

    def __init__(self, step, error=KeyboardInterrupt):
        self.left, self.error = step, error

    def __enter__(self):
        self.handle = register_optimizer_step_pre_hook(self.step)

    def __exit__(self, *_):
        self.handle.remove()

    def step(self, *_):
        self.left -= 1
        if self.left == 0:
            raise self.error


# The entries


def test_every_network_of_table_d1_and_all_comparisons_are_there():
    kinds = ("fully-connected", "single", "multi-tier", "cnn")
    compared = {f"{name}-{kind}" for name in ("mnist-5k", "fashion-mnist") for kind in kinds}
    compared |= {f"svd-mnist-5k-{map_}" for map_ in ("auxiliary", "householder", "householder-uniform", "cayley", "exponential")}
    compared |= {f"rnn-mnist-5k-{map_}" for map_ in ("auxiliary", "one-reflection", "many-reflections", "orthogonal")}
    compared |= {f"glow-photo-patches-{map_}" for map_ in ("free", "householder", "kappa-1.5", "kappa-1.9", "auxiliary")}
    assert EXPERIMENTS.keys() == {*networks.TABLE_D1, *compared, "tiny"}
    claims = {claim.id for claim in ledger.load(ROOT / "book" / "claims.yml")}
    for name, entry in EXPERIMENTS.items():
        assert entry.name == name and entry.question.endswith("?")
        assert entry.claim in claims


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "tiny"])
def test_an_entry_builds_its_model_for_the_images_of_each_profile(name):
    entry = EXPERIMENTS[name]
    assert networks.count_parameters(entry.build("paper")) == entry.parameters
    shapes = {"mnist-5k": (1, 28, 28), "fashion-mnist": (1, 28, 28), "photo-patches": (3, 16, 16)}
    model, x = entry.build("quick"), torch.zeros(1, *shapes[entry.quick.data])
    if layer := getattr(model, "equilibrium", None):  # without a solve, which takes its time for the large ones
        dense = isinstance(layer.injection, torch.nn.Linear)
        assert layer.injection(x.flatten(1) if dense else x).shape == (1, *layer.operator.state_shape)
    elif isinstance(model, Glow):
        assert model.eval()(x).shape == (1,) and entry.build("paper").image_shape == (3, 32, 32)
    else:
        assert model(x).shape == (1, 10)
    assert entry.quick.epochs < entry.paper.epochs
    assert (entry.quick.data, entry.quick.train) != (entry.paper.data, entry.paper.train) or name.startswith("mnist-5k")
    with pytest.raises(ValueError, match="profile = 'whole'"):
        entry.build("whole")


def test_recurrent_networks_begin_as_one_network():
    """The same seed gives the same function, whatever the transition, but for the one mirror, which is no rotation."""
    x, found = torch.randn(3, 1, 28, 28), {}
    for kind in ("auxiliary", "many-reflections", "orthogonal", "one-reflection"):
        torch.manual_seed(7)
        model = EXPERIMENTS[f"rnn-mnist-5k-{kind}"].build("quick")
        found[kind] = model(x).detach()
        assert len(model.states(model.read(x))) == 14 * 14 + 1
    for kind in ("many-reflections", "orthogonal"):
        torch.testing.assert_close(found[kind], found["auxiliary"], rtol=1e-3, atol=1e-3)
    assert (found["one-reflection"] - found["auxiliary"]).abs().max() > 0.05


def test_what_a_recipe_gives_the_model_is_in_the_result():
    assert EXPERIMENTS["rnn-mnist-5k-auxiliary"].quick.to_dict()["options"] == {"hidden": 64, "shrink": 2}
    for entry in EXPERIMENTS.values():
        for recipe in (entry.paper, entry.quick):
            plain = recipe.to_dict()
            assert json.loads(json.dumps(plain)) == plain
            assert ("options" in plain) == bool(recipe.options)


@pytest.mark.parametrize("name", networks.TABLE_D1)
def test_the_profile_paper_is_table_d1(name):
    row, recipe = networks.TABLE_D1[name], EXPERIMENTS[name].paper
    assert EXPERIMENTS[name].parameters == row.parameters
    assert (recipe.data, recipe.train, recipe.test, recipe.batch_size, recipe.options) == (row.data, None, None, 128, ())
    assert (recipe.epochs, recipe.learning_rate, recipe.schedule) == (row.epochs, row.learning_rate, row.schedule)
    assert recipe.augmented == row.augmented


def test_the_accuracies_are_those_that_the_papers_text_still_has():
    found = {name: entry.reported for name, entry in EXPERIMENTS.items() if entry.reported is not None}
    assert found == {
        "mnist-fully-connected": 0.982,
        "mnist-multi-tier": 0.989,
        "cifar10-multi-tier": 0.718,
        "cifar10-multi-tier-large": 0.897,
        "glow-photo-patches-free": 3.66,
        "tiny": 0.987,
    }


def test_the_list_says_what_each_answers(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    for name, entry in EXPERIMENTS.items():
        assert name in out and entry.question in out and f"{entry.parameters:,}" in out


# A run


def test_a_run_leaves_one_file_for_each_seed(folder, capsys):
    assert main(["run", "tiny", "--seeds", "3", "1", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert len(files(folder)) == 3  # and .checkpoints
    runs = experiments.results("tiny")
    assert {run["seed"] for run in runs} == {1, 3}
    for run in runs:
        assert run["file"] in files(folder) and run["file"] in said
        assert (run["name"], run["profile"], run["claim"]) == ("tiny", "quick", "MON-TAB1")
        assert (run["model"], run["parameters"]) == ("FullyConnectedMON", 4852)
        assert (run["data"]["name"], run["data"]["train"], run["data"]["test"]) == ("mnist-5k", 100, 50)
        assert run["recipe"] == {
            "data": "mnist-5k", "train": 100, "test": 50, "augmented": False, "epochs": 3, "batch_size": 25,
            "learning_rate": 0.01, "schedule": "StepDecay(every=2, factor=10.0)",
            "solver": "PeacemanRachford", "alpha": "auto", "tol": 0.001,
        }  # fmt: skip
        assert run["torch"] == torch.__version__ and run["device"] and run["interrupted"] == []
        assert run["seconds"] > sum(epoch["seconds"] for epoch in run["history"]) > 0
        assert json.loads((folder / run["file"]).read_text()) == {key: value for key, value in run.items() if key != "file"}
    assert sorted(path.suffix for path in (folder / ".checkpoints").iterdir()) == ["", ".lock", ".lock"]


def test_a_density_is_scored_in_bits(folder, monkeypatch, capsys):
    options = (("image_shape", (3, 16, 16)), ("levels", 1), ("steps", 1), ("hidden", 4))
    quick = Recipe("photo-patches", 2, 1e-3, training.Constant(), 32, False, 64, 32, options, training.Density())
    flow = Experiment("flow", "REF-33", "Does it run?", Glow, 711_468, quick, quick, 3.5)
    monkeypatch.setitem(EXPERIMENTS, "flow", flow)
    assert main(["run", "flow", "--seeds", "0", "1", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    first, second = experiments.results("flow")
    bits = [run["history"][-1]["test_loss"] for run in (first, second)]
    assert first["accuracy"] is None and first["recipe"]["objective"] == "Density(seed=0)" and first["model"] == "Glow"
    assert all(f"{value:.3f} bits" in said for value in bits) and all(2 < value < 12 for value in bits)
    (row,) = experiments.summary(["flow"], "quick")
    assert (row["measure"], row["low"], row["high"]) == ("bits per dimension", min(bits), max(bits)) and row["current"]
    assert main(["report", "flow", "tiny"]) == 0
    table = capsys.readouterr().out
    assert f"{row['mean']:.3f} ({min(bits):.3f} to {max(bits):.3f})" in table and "3.50" in table and "98.7%" in table


def test_the_history_is_that_of_the_training_loop_and_the_callers_random_state_stays():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    (run,) = experiments.run("tiny", "paper", seeds=[2], say=list)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    model = networks.FullyConnectedMON(units=6)
    train, test = data.load("mnist-5k").take(100).augmented(), data.load("mnist-5k", train=False).take(50)
    options = {"learning_rate": 1e-2, "schedule": training.StepDecay(2), "batch_size": 25}
    expected = training.fit(model, train, test, epochs=4, seed=2, **options)
    assert training.History.from_list(run["history"]) == expected
    assert run["accuracy"] == training.evaluate(model, test)[1] == expected[-1].test_accuracy
    assert run["recipe"]["augmented"] is True


def test_what_is_there_is_not_run_again_unless_asked(folder, capsys):
    (first,) = experiments.run("tiny", seeds=[0])
    with Interrupt(1, AssertionError("trained")):
        assert experiments.run("tiny", seeds=[0]) == [first]
    said = capsys.readouterr().out.splitlines()
    assert ["started" in line for line in said] == [True, False, False]
    assert first["file"] in said[1] and said[2] == said[1]
    whole = (folder / first["file"]).read_bytes()
    (second,) = experiments.run("tiny", seeds=[0], again=True)
    assert second["file"] != first["file"] and without_time(second) == without_time(first)
    assert (folder / first["file"]).read_bytes() == whole
    assert [run["file"] for run in experiments.results("tiny")] == [first["file"], second["file"]]


def test_another_recipe_or_solver_is_another_run(monkeypatch):
    experiments.run("tiny", seeds=[0], say=list)
    others = (
        replace(TINY, quick=replace(QUICK, learning_rate=2e-2)),
        replace(TINY, network=partial(networks.FullyConnectedMON, units=6, solver=PeacemanRachford(tol=1e-2))),
        replace(TINY, network=partial(networks.FullyConnectedMON, units=7)),
    )
    for number, other in enumerate(others, start=2):
        monkeypatch.setitem(EXPERIMENTS, "tiny", other)
        experiments.run("tiny", seeds=[0], say=list)
        assert len(experiments.results("tiny")) == number


# Interruption


@pytest.mark.parametrize("step", [2, 6, 11], ids=["in the first epoch", "in the second", "in the last"])
def test_a_resumed_run_equals_one_that_was_not_interrupted(folder, tmp_path, capsys, step):
    (whole,) = experiments.run("tiny", seeds=[1], out=tmp_path / "whole")
    capsys.readouterr()
    with Interrupt(step):
        assert main(["run", "tiny", "--seeds", "1", "4", "--data-root", "a b"]) == 130
    error = capsys.readouterr().err
    assert "run tiny --profile quick --seeds 1 4 --data-root 'a b' --resume\n" in error
    assert experiments.results() == []
    if step > 4:  # there is a whole epoch, which is not thrown away unasked
        assert main(["run", "tiny", "--seeds", "1"]) == 1
        error = capsys.readouterr().err
        assert "interrupted" in error and "--resume" in error and "--again" in error and error.count("\n") == 1
    torch.manual_seed(77)
    assert main(["run", "tiny", "--seeds", "1", "--resume"]) == 0
    (run,) = experiments.results("tiny")
    assert without_time(run) == without_time(whole)
    assert len(run["interrupted"]) == (step > 4)
    for part in run["interrupted"]:
        assert part["commit"] == run["commit"] and part["device"] == run["device"]
        assert run["seconds"] > part["seconds"] > 0
    assert sorted(path.suffix for path in (folder / ".checkpoints").iterdir()) == ["", ".lock"]


def test_a_second_interruption_loses_nothing():
    for step in (6, 5):
        with Interrupt(step), pytest.raises(KeyboardInterrupt):
            experiments.run("tiny", seeds=[1], resume=True, say=list)
    (run,) = experiments.run("tiny", seeds=[1], resume=True, say=list)
    assert len(run["interrupted"]) == 2
    (whole,) = experiments.run("tiny", seeds=[1], again=True, say=list)
    assert without_time(run) == without_time(whole)


def test_an_interrupted_run_can_be_thrown_away():
    with Interrupt(6), pytest.raises(KeyboardInterrupt):
        experiments.run("tiny", seeds=[1], say=list)
    with Interrupt(11), pytest.raises(KeyboardInterrupt):  # from the start: 12 steps are a whole run
        experiments.run("tiny", seeds=[1], again=True, say=list)
    (run,) = experiments.run("tiny", seeds=[1], again=True, say=list)
    assert run["interrupted"] == []


def test_a_checkpoint_of_another_recipe_is_refused_and_kept(folder, monkeypatch, capsys):
    with Interrupt(6):
        assert main(["run", "tiny", "--seeds", "0"]) == 130
    monkeypatch.setitem(EXPERIMENTS, "tiny", replace(TINY, quick=replace(QUICK, learning_rate=2e-2)))
    capsys.readouterr()
    assert main(["run", "tiny", "--seeds", "0", "--resume"]) == 1
    error = capsys.readouterr().err
    assert "learning_rate was 0.01 and is now 0.02" in error and "--again" in error and error.count("\n") == 1
    assert (folder / ".checkpoints" / "tiny-quick-seed0.pt").exists()


def test_a_checkpoint_without_its_record_is_refused(folder):
    with Interrupt(6), pytest.raises(KeyboardInterrupt):
        experiments.run("tiny", seeds=[0], say=list)
    record = folder / ".checkpoints" / "tiny-quick-seed0.json"
    for text in ("[", "[]", "{}"):
        record.write_text(text)
        with pytest.raises(training.CheckpointError, match=r"tiny-quick-seed0\.json is damaged"):
            experiments.run("tiny", seeds=[0], resume=True, say=list)


def test_one_process_at_a_time(folder, capsys):
    with Unfinished(folder, "tiny-quick-seed0"):
        assert main(["run", "tiny", "--seeds", "0", "5"]) == 1
        captured = capsys.readouterr()
        assert "tiny-quick-seed0 is being run by another process" in captured.err and captured.err.count("\n") == 1
        assert [run["seed"] for run in experiments.results("tiny")] == [5]  # the other seed is free
    assert main(["run", "tiny", "--seeds", "0"]) == 0


def test_a_result_that_came_while_we_waited_is_taken(monkeypatch):
    """Another process finishes between the first look and the claim; its checkpoint, if it has one again, is not ours."""
    enter = Unfinished.__enter__

    def late(self):
        monkeypatch.setattr(Unfinished, "__enter__", enter)
        experiments.run("tiny", seeds=[0], say=list)
        held = enter(self)
        self.checkpoint.write_text("of a run that was asked for again")
        return held

    monkeypatch.setattr(Unfinished, "__enter__", late)
    (run,) = experiments.run("tiny", seeds=[0], say=list)
    assert experiments.results("tiny") == [run]
    assert Unfinished(Path(os.environ["MON_RESULTS"]), "tiny-quick-seed0").checkpoint.exists()


# Failures


def test_a_disk_that_fails_leaves_no_result_and_loses_no_training(folder, monkeypatch, capsys):
    link = os.link

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "link", full)
    assert main(["run", "tiny", "--seeds", "0"]) == 1
    assert "no space left" in capsys.readouterr().err
    assert files(folder) == [".checkpoints"]
    monkeypatch.setattr(os, "link", link)
    with Interrupt(1, AssertionError("trained")):
        assert main(["run", "tiny", "--seeds", "0", "--resume"]) == 0
    assert len(experiments.results("tiny")) == 1


def test_a_file_is_whole_or_absent(tmp_path, monkeypatch):
    with pytest.raises(ValueError):
        experiments.save("a", {"loss": [1.0, float("inf")]}, tmp_path)

    def full(*_):
        raise OSError("no space left on device")

    path = tmp_path / "record"
    _files.write_whole(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    for write in (lambda: experiments.save("a", {}, tmp_path), lambda: _files.write_whole(path, "new")):
        with pytest.raises(OSError, match="space"):
            write()
    assert files(tmp_path) == ["record"]
    assert path.read_text() == "old"


def test_one_failing_seed_does_not_stop_the_others(capsys, monkeypatch):
    with Interrupt(1, FloatingPointError("the loss is\nnan")):
        assert main(["run", "tiny", "--seeds", "0", "1"]) == 1
    assert capsys.readouterr().err == "tiny-quick-seed0 failed: the loss is nan\n"
    assert [run["seed"] for run in experiments.results("tiny")] == [1]
    impatient = partial(networks.FullyConnectedMON, units=6, solver=PeacemanRachford(tol=1e-6, max_steps=1))
    monkeypatch.setitem(EXPERIMENTS, "tiny", replace(TINY, network=impatient))
    assert main(["run", "tiny", "--seeds", "2"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("tiny-quick-seed2 failed: ") and "max_steps" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (torch.linalg.LinAlgError("the input matrix is\nsingular"), "LinAlgError: the input matrix is singular"),
        (RuntimeError("CUDA error"), "RuntimeError: CUDA error"),
        (RuntimeError(), "RuntimeError"),
        (ValueError("a shape"), "a shape"),
    ],
)
def test_what_pytorch_cannot_do_costs_one_seed(capsys, error, text):
    with Interrupt(1, error):
        assert main(["run", "tiny", "--seeds", "0", "1"]) == 1
    assert capsys.readouterr().err == f"tiny-quick-seed0 failed: {text}\n"
    assert [run["seed"] for run in experiments.results("tiny")] == [1]


@pytest.mark.parametrize("error", [TypeError, AttributeError, AssertionError])
def test_faults_of_the_code_keep_their_traceback(error):
    with Interrupt(1, error("of the code")), pytest.raises(error, match="of the code"):
        main(["run", "tiny", "--seeds", "0", "1"])


def test_missing_data_is_one_line(monkeypatch, capsys):
    def offline(name, train=True, root=None):
        raise data.DataUnavailableError(f"{name} is not under {root}")

    monkeypatch.setattr(_recipes, "load", offline)
    assert main(["run", "tiny", "svhn-single", "--data-root", "nowhere"]) == 1
    assert capsys.readouterr().err == "error: mnist-5k is not under nowhere\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "mnist-sinlge"], "no experiment is called 'mnist-sinlge'; did you mean mnist-single"),
        (["run", "xyzzy"], "list shows them"),
        (["run"], "NAME"),
        (["run", "tiny", "--seeds", "0", "1", "0"], "seed 0 is there twice"),
        (["run", "tiny", "--seeds", "-1"], "seed -1 is not an integer from 0"),
        (["run", "tiny", "--seeds", "two"], "seed 'two' is not an integer;"),
        (["run", "tiny", "--seeds", "0", "mnist-single"], "names of experiments go before --seeds"),
        (["run", "tiny", "--seeds", str(2**63)], "2\\*\\*63 - 1"),
        (["run", "tiny", "--profile", "whole"], "whole"),
        (["run", "tiny", "--device", "abacus"], "device = 'abacus' cannot be used"),
        (["run", "tiny", "--device", "meta"], "device = 'meta' cannot be used"),
        (["run", "tiny", "--device", "hpu"], "device = 'hpu' cannot be used"),
        (["run", "tiny", "--device", "vulkan"], "device = 'vulkan' cannot be used"),
        (["run", "tiny", "--out", __file__], "test_experiments.py is a file"),
        (["run", "tiny", "--out", ""], "argument --out: folder = '' names no folder; pass one"),
        (["run", "tiny", "--out", " \t"], "names no folder; pass one"),
        (["run", "tiny", "--data-root", ""], "argument --data-root: folder = '' names no folder; pass one"),
        (["report", "--folder", ""], "folder = '' names no folder"),
        (["report", "--out", " "], "folder = ' ' names no folder"),
        (["report", "--folder", __file__], "test_experiments.py is a file"),
        (["report", "--out", __file__], "test_experiments.py is a file"),
        (["report", "--folder", "nowhere/at/all"], "there is no folder nowhere/at/all"),
        (["report", "--out", "~nobody-of-this-name/results"], "cannot be used"),
        (["report", "xyzzy"], "xyzzy"),
        (["walk"], "walk"),
        ([], "list | run | report"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(folder, capsys, arguments, message):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2
    error = capsys.readouterr().err
    assert message.replace("\\", "") in error and error.count("\n") == 1
    assert not folder.exists()


def test_the_function_refuses_it_too():
    for options, message in (
        ({"name": "tiny-single"}, "no experiment"),
        ({"name": "tiny", "profile": "large"}, "profile = 'large'"),
        ({"name": "tiny", "seeds": []}, "no seeds"),
        ({"name": "tiny", "seeds": [True]}, "seed True"),
        ({"name": "tiny", "seeds": [1, 1]}, "twice"),
        ({"name": "tiny", "device": "abacus"}, "abacus"),
        ({"name": "tiny", "device": "meta"}, "meta"),
        ({"name": "tiny", "out": ""}, "out = '' names no folder; pass one"),
        ({"name": "tiny", "data_root": " "}, "data_root = ' ' names no folder; pass one"),
    ):
        with pytest.raises(ValueError, match=message):
            experiments.run(**options)
    for read in (experiments.results, experiments.summary, experiments.report):
        with pytest.raises(ValueError, match="folder = '' names no folder"):
            read(folder="")
    with pytest.raises(ValueError, match="folder = '' names no folder"):
        experiments.save("run", {}, "")


# Reading back


@pytest.fixture
def result(folder):
    (run,) = experiments.run("tiny", "paper", seeds=[0], say=list)
    return folder / run["file"]


def changed(result, **values):
    """A copy of a result with other values, under a name of its own."""
    content = json.loads(result.read_text()) | values
    return experiments.save(f"run-{content['name']}-{content['profile']}-seed{content['seed']}", content, result.parent)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[: len(text) // 2], ""),
        (lambda text: "", ""),
        (lambda text: "[1]", "format"),
        (lambda text: text.replace('"seed": 0', '"seed": NaN'), "NaN"),
        (lambda text: text.replace('"seed": 0', '"seed": true'), "seed = True"),
        (lambda text: text.replace('"device"', '"machine"'), "device is missing"),
        (lambda text: text.replace('"profile": "paper"', '"profile": "whole"'), "whole"),
        (lambda text: text.replace('"epoch": 2', '"epoch": 3'), "history"),
        (lambda text: text.replace('"train_loss"', '"loss"', 1), "loss"),
        (lambda text: text.replace('"accuracy": 0', '"accuracy": 1'), "accuracy"),
        (lambda text: text.replace('"epochs": 4', '"epochs": 1000000000000000'), "epochs"),
        (lambda text: text.replace('"split"', '"half"').replace('"test": 50\n', '"tests": 50\n'), "data has no test"),
        (lambda text: "[" * 100_000, ""),
    ],
)
def test_a_damaged_file_is_named(result, damage, reason):
    assert len(experiments.results()) == 1
    damaged = damage(result.read_text())
    assert damaged != result.read_text()
    result.write_text(damaged)
    with pytest.raises(ValueError, match=f"{result.name}.*{reason}"):
        experiments.results("tiny")


def test_a_damaged_file_blocks_only_its_own_experiment(result, folder, capsys):
    other = changed(result, name="cifar10-single-large")
    for name in ("run-cifar10-single-large-quick-seed7-2026-01-01.json", "run-cifar10-single-quick-seed7-2026-01-01.json"):
        (folder / name).write_text("{")
    (folder / "run-tiny-quick-seed9-2026-01-01.json").mkdir()  # cannot be read at all
    (folder / "run-unheard-of.json").write_text("{")
    assert [run["file"] for run in experiments.results("tiny", "paper")] == [result.name]
    assert [run["file"] for run in experiments.results("cifar10-single-large", "paper")] == [other.name]
    assert experiments.summary(["tiny"], "paper")[0]["seeds"] == [0]
    for name in ("tiny", "cifar10-single", "cifar10-single-large", None):
        with pytest.raises(ValueError, match="run-" + ("" if name is None else f"{name}-quick-seed")):
            experiments.results(name)
    with Interrupt(1, AssertionError("trained")):
        assert main(["run", "tiny", "--profile", "paper", "--seeds", "0"]) == 0
    capsys.readouterr()
    assert main(["report", "tiny", "cifar10-single", "--profile", "paper"]) == 0
    assert capsys.readouterr().err == ""

    for option in ("--folder", "--out"):
        assert main(["report", option, str(folder)]) == 1
        said = capsys.readouterr()
        assert len([line for line in said.out.splitlines() if "mnist-5k, 100 + 50" in line]) == 2
        damaged = ("cifar10-single-large-quick-seed7", "cifar10-single-quick-seed7", "tiny-quick-seed9", "unheard-of")
        warnings = said.err.splitlines()
        assert len(warnings) == 4
        for name, line in zip(damaged, warnings, strict=True):
            assert line.startswith("warning: ") and f"run-{name}" in line
    with pytest.raises(ValueError, match=r"run-tiny-quick-seed9.*unheard-of"):
        experiments.report()
    assert "mnist-5k, 100 + 50" in capsys.readouterr().out


def test_the_report_of_nothing_is_that_nothing_was_run(folder, capsys):
    assert main(["report", "tiny"]) == 0
    assert "not run" in capsys.readouterr().out and not folder.exists()


def test_results_are_the_newest_last_and_other_files_are_left_alone(result, folder):
    changed(result, date="2001-01-01T00:00:00+00:00", seed=3)
    changed(result, date="2001-01-01T02:00:00+01:00", seed=2)
    changed(result, name="cifar10-single-large", date="1999-01-01T00:00:00+00:00")
    for number in range(2, 12):  # in one second, so that the number in the name decides, as a number
        changed(result, threads=number)
    (folder / "bench-dense-2026-01-01.json").write_text("{}")
    (folder / ".new-1.tmp").write_text("half a fi")
    runs = experiments.results()
    assert [run["seed"] for run in runs] == [0, 3, 2] + [0] * 11
    assert [run["threads"] for run in runs[4:]] == list(range(2, 12))
    assert experiments.results("cifar10-single") == []
    assert len(experiments.results("cifar10-single-large", "paper")) == 1
    assert experiments.results(profile="quick") == []
    assert experiments.results(folder=folder / "nowhere") == []
    for name, profile in (("tiny2", None), ("tiny", "large")):
        with pytest.raises(ValueError, match=r"tiny2|large"):
            experiments.results(name, profile)


def test_the_report_puts_the_papers_value_beside_ours(result, capsys):
    *earlier, last = json.loads(result.read_text())["history"]
    for seed, accuracy in ((1, 0.5), (2, 0.75), (0, 1.0)):  # the second run with seed 0 replaces the first
        history = [*earlier, last | {"test_accuracy": accuracy}]
        changed(result, seed=seed, accuracy=accuracy, history=history, device="an abacus", date="2030-02-03T00:00:00+00:00")
    old = json.loads(result.read_text())["recipe"] | {"batch_size": 7}
    changed(result, recipe=old, device="a slide rule")
    assert main(["report"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (ours,) = (line for line in lines if "an abacus" in line)
    for part in ("tiny", "paper", "mnist-5k, 100 + 50", "0 1 2", "75.00% (50.00% to 100.00%)", "98.7%", "2030-02-03"):
        assert part in ours
    (other,) = (line for line in lines if "a slide rule" in line)
    assert "old recipe" in other and "old recipe" not in ours
    (missing,) = (line for line in lines if line.startswith("mnist-multi-tier "))
    assert "not run" in missing and "98.9%" in missing
    experiments.report(["tiny"], "quick")
    assert capsys.readouterr().out.splitlines()[2].split() == ["tiny", "quick", "-", "-", "not", "run", "-", "-", "-"]
    (row,) = experiments.summary(["tiny"], "quick")
    assert (row["runs"], row["paper"]) == ([], None)
    with pytest.raises(ValueError, match="no experiment"):
        experiments.summary(["tinier"])


def test_the_books_own_results_are_whole(monkeypatch):
    monkeypatch.delenv("MON_RESULTS")
    assert experiments.default_folder() == ROOT / "results"
    for run in experiments.results():
        assert run["claim"] == EXPERIMENTS[run["name"]].claim


# Where a result is from


def git(folder, *arguments):
    options = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *options, *arguments], check=True, capture_output=True, text=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_the_commit_and_whether_the_tree_is_clean(tmp_path, monkeypatch):
    revision = _files.revision.__wrapped__  # without the cache
    assert revision(None) == revision(tmp_path) == ("unknown", None)
    git(tmp_path, "init")
    assert revision(tmp_path) == ("unknown", None)  # no commit yet
    (tmp_path / "a.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    commit, clean = revision(tmp_path)
    assert len(commit) == 40 and clean is True
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "run.json").write_text("{}")  # what a run leaves does not make the next one unclean
    assert revision(tmp_path) == (commit, True)
    inner = tmp_path / "inner"  # installed inside somebody's repository is not that repository
    inner.mkdir()
    assert revision(inner) == ("unknown", None)
    (tmp_path / "b.py").write_text("y = 1\n")
    assert revision(tmp_path) == (commit, False)
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))
    assert revision(tmp_path) == (commit, False)
    monkeypatch.setenv("PATH", str(inner))
    assert revision(tmp_path) == ("unknown", None)


def test_the_folder_of_results(tmp_path, monkeypatch):
    assert experiments.default_folder() == tmp_path / "results"
    for blank in ("", " "):
        monkeypatch.setenv("MON_RESULTS", blank)
        assert experiments.default_folder() == ROOT / "results"
    monkeypatch.delenv("MON_RESULTS")
    monkeypatch.setattr(_files, "checkout", lambda: None)
    monkeypatch.chdir(tmp_path)
    assert experiments.default_folder() == tmp_path / "results"
