"""The training loop: schedules, history, exact resumption, checkpoints that cannot be lost, clear errors."""

import hashlib
import io
import json
import math
import os
import pickle
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.optimizer import register_optimizer_step_pre_hook

from mon_lib import data, prox, stepsize
from mon_lib.errors import ConvergenceError
from mon_lib.flows import Glow
from mon_lib.networks import MLP, FullyConnectedMON
from mon_lib.splitting import PeacemanRachford
from mon_lib.training import CheckpointError, Constant, Density, Epoch, History, OneCycle, Schedule, StepDecay, evaluate, fit


@pytest.fixture(scope="module")
def halves():
    return data.load("mnist-5k").take(200), data.load("mnist-5k", train=False).take(100)


def perceptron(seed=0):
    torch.manual_seed(seed)
    return MLP(widths=(12,))


def noisy(seed=0):
    """A model that draws random numbers in training, so that a resumed run needs the random state."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.Dropout(0.3), nn.ReLU(), nn.Linear(12, 10))


def monotone(seed=0, solver=None):
    torch.manual_seed(seed)
    return FullyConnectedMON(units=12, solver=solver)


def same_weights(first, second):
    """Also the extra state of an equilibrium layer, where NaN stands for what was not chosen."""
    a, b = first.state_dict(), second.state_dict()
    return a.keys() == b.keys() and all(torch.allclose(a[k], b[k], rtol=0, atol=0, equal_nan=True) for k in a)


# Schedules


def test_step_decay_divides_after_every_so_many_epochs():
    schedule = StepDecay(10)
    rates = [schedule.at(t, 1e-2)[0] for t in (0.0, 9.99, 10.0, 19.99, 20.0)]
    assert rates == pytest.approx([1e-2, 1e-2, 1e-3, 1e-3, 1e-4])
    assert schedule.at(25.0, 1e-2)[1] == 0.9
    assert Constant().at(25.0, 1e-2) == (1e-2, 0.9)


@pytest.mark.parametrize(
    ("position", "rate", "beta"),
    [(0, 0.001, 0.95), (15, 0.0055, 0.90), (30, 0.01, 0.85), (45, 0.0055, 0.90), (60, 0.001, 0.95), (64.5, 0.001, 0.95)],
)
def test_one_cycle_is_the_papers(position, rate, beta):
    assert OneCycle(0.01).at(position, 0.001) == pytest.approx((rate, beta))


def test_the_optimiser_follows_the_schedule(halves):
    train, test = halves
    seen = []
    handle = register_optimizer_step_pre_hook(
        lambda optimiser, *_: seen.append((optimiser.param_groups[0]["lr"], *optimiser.param_groups[0]["betas"]))
    )
    try:
        schedule = OneCycle(0.01, up=1, down=1, hold=1)
        history = fit(perceptron(), train, test, epochs=3, seed=0, batch_size=100, schedule=schedule)
    finally:
        handle.remove()
    expected = [(*schedule.at(t, 1e-3), 0.999) for t in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)]
    assert seen == [pytest.approx(step) for step in expected]
    assert history.column("learning_rate") == pytest.approx([expected[1][0], expected[3][0], expected[5][0]])


@pytest.mark.parametrize(
    "make",
    [
        lambda: StepDecay(0),
        lambda: StepDecay(5, factor=0),
        lambda: OneCycle(peak=-1.0),
        lambda: OneCycle(0.01, up=0),
        lambda: OneCycle(0.01, momentum=(1.0, 0.9)),
        lambda: OneCycle(0.01, momentum=(0.9,)),
        lambda: OneCycle(0.01, momentum=(0.9, 0.8, 0.9)),
        lambda: OneCycle(0.01, momentum=0.9),
    ],
)
def test_senseless_schedules_are_refused(make):
    with pytest.raises(ValueError, match="must"):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StepDecay("a"), "every = 'a' is str; pass a number of epochs, such as 10"),
        (lambda: StepDecay(1.5), r"every = 1\.5 is float; pass a number of epochs"),
        (lambda: StepDecay(True), "every = True is bool"),
        (lambda: StepDecay(2, factor=None), "factor = None is NoneType; pass a divisor, such as 10"),
        (lambda: OneCycle("a"), r"peak = 'a' is str; pass a learning rate, such as 0\.01"),
        (lambda: OneCycle(0.01, hold=None), "hold = None is NoneType"),
        (lambda: OneCycle(0.01, momentum=("a", 0.85)), "momentum = 'a' is str; pass two"),
    ],
)
def test_a_schedule_is_made_of_numbers(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_the_momentum_is_named():
    with pytest.raises(ValueError, match=r"momentum = \(0\.9,\) must be two numbers"):
        OneCycle(0.01, momentum=(0.9,))


# The loop


def test_one_step_is_adam_on_the_cross_entropy(halves):
    train, test = halves
    model, reference = perceptron(), perceptron()
    history = fit(model, train, test, epochs=1, seed=3, batch_size=200)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(3))
    optimiser = torch.optim.Adam(reference.parameters(), lr=1e-3)
    loss = cross_entropy(reference(train.images[order]), train.labels[order])
    loss.backward()
    optimiser.step()
    assert same_weights(model, reference)
    assert history[0].train_loss == pytest.approx(loss.item())
    with torch.no_grad():
        logits = reference(test.images)
    assert history[0].test_loss == pytest.approx(cross_entropy(logits, test.labels).item(), rel=1e-5)
    assert history[0].test_accuracy == (logits.argmax(1) == test.labels).double().mean().item()


def test_it_learns(halves):
    history = fit(perceptron(), *halves, epochs=8, seed=0, batch_size=20)
    losses = history.column("train_loss")
    assert losses[-1] < 0.5 * losses[0]
    assert history[-1].test_accuracy > 0.6
    assert history.column("epoch") == list(range(1, 9))
    assert history.column("forward_steps") == [0.0] * 8
    assert all(seconds > 0 for seconds in history.column("seconds"))


def test_a_run_is_a_function_of_its_seed(halves):
    models = [noisy(), noisy(), noisy()]
    histories = [fit(model, *halves, epochs=2, seed=seed) for model, seed in zip(models, (0, 0, 1), strict=True)]
    assert histories[0] == histories[1]
    assert same_weights(models[0], models[1])
    assert histories[0] != histories[2]


def test_the_callers_random_state_is_left_alone(halves):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(784, 10))
    torch.manual_seed(5)
    fit(model, *halves, epochs=1, seed=0)
    assert torch.equal(torch.rand(3), expected)


def test_augmentation_reaches_training_and_only_training(halves):
    train, test = halves
    plain = fit(perceptron(), train, test, epochs=1, seed=0)
    augmented = fit(perceptron(), train.augmented(padding=4), test.augmented(padding=4), epochs=1, seed=0)
    assert plain[0].train_loss != augmented[0].train_loss
    model = perceptron()
    assert evaluate(model, test) == evaluate(model, test.augmented(padding=4))


def test_evaluate_keeps_the_mode_and_ignores_the_batch_size(halves):
    model = noisy().train()
    whole, parts = evaluate(model, halves[1]), evaluate(model, halves[1], batch_size=7)
    assert model.training
    assert whole == pytest.approx(parts, rel=1e-6)


def test_a_model_without_parameters_can_be_evaluated(halves):
    class Zero(nn.Module):
        def forward(self, x):
            return x.new_zeros(len(x), 10)

    loss, accuracy = evaluate(Zero(), halves[1])
    assert loss == pytest.approx(math.log(10))
    assert accuracy == 0.1
    with pytest.raises(ValueError, match="mnist-5k has no images"):
        evaluate(Zero(), halves[1][:0])


def test_nothing_is_printed_where_there_is_no_terminal(halves, capfd):
    fit(perceptron(), *halves, epochs=1, seed=0)
    assert capfd.readouterr() == ("", "")


# Equilibrium networks


def test_solver_steps_and_alpha_are_recorded(halves):
    model = monotone()
    history = fit(model, *halves, epochs=3, seed=0, batch_size=50, learning_rate=1e-2)
    for epoch in history:
        assert epoch.forward_steps >= 1
        assert epoch.backward_steps >= 1
        assert len(epoch.alpha) == 1
    assert len(set(history.column("alpha"))) == 3  # chosen anew at every epoch
    assert model.equilibrium.operator.monotonicity() > 1.0 - 1e-5


def test_the_recorded_steps_are_the_mean_over_batches(halves):
    model = monotone()
    steps = []
    model.equilibrium.register_forward_hook(lambda layer, *_: steps.append(layer.forward_report.steps) if layer.training else None)
    history = fit(model, *halves, epochs=1, seed=0, batch_size=50)
    assert len(steps) == 4
    assert history[0].forward_steps == sum(steps) / 4


@pytest.mark.parametrize("alpha", [1.0, stepsize.Fixed(0.5)])
def test_a_fixed_alpha_stays(halves, alpha):
    history = fit(monotone(solver=PeacemanRachford(alpha=alpha, tol=1e-3)), *halves, epochs=2, seed=0)
    assert history.column("alpha") == [(getattr(alpha, "alpha", alpha),)] * 2


def test_the_papers_halving_search_trains(halves):
    solver = PeacemanRachford(alpha=stepsize.Halving(), tol=1e-3)
    history = fit(monotone(solver=solver), *halves, epochs=2, seed=0)
    assert all(math.log2(alpha) == round(math.log2(alpha)) for (alpha,) in history.column("alpha"))


class Pair(nn.Module):
    """Two equilibrium networks of which the forward pass uses the second only where told to."""

    def __init__(self, use_second):
        super().__init__()
        self.first, self.second, self.use_second = monotone(0), monotone(1), use_second

    def forward(self, x):
        return self.first(x) + (self.second(x) if self.use_second(self) else 0)


def freeze(model):
    for p in model.parameters():
        p.requires_grad_(False)
    return model


def test_a_frozen_equilibrium_takes_no_backward_steps(halves):
    model = monotone()
    freeze(model.equilibrium)
    history = fit(model, *halves, epochs=2, seed=0, batch_size=50)
    assert history.column("backward_steps") == [0.0, 0.0]
    assert min(history.column("forward_steps")) >= 1
    assert history[0].alpha == history[1].alpha != (None,)


def test_a_report_of_an_earlier_solve_is_not_counted(halves):
    model, alone = monotone(), monotone()
    loss = cross_entropy(model(halves[0].images[:20]), halves[0].labels[:20])
    loss.backward()
    assert model.equilibrium.backward_report.steps >= 1
    freeze(model.equilibrium), freeze(alone.equilibrium)
    expected = fit(alone, *halves, epochs=1, seed=0)
    assert fit(model, *halves, epochs=1, seed=0)[0].backward_steps == expected[0].backward_steps == 0.0


def test_a_layer_that_is_not_used_counts_nothing(halves, tmp_path):
    pair, alone = Pair(lambda model: not model.training), monotone()  # the test uses it, training does not
    history = fit(pair, *halves, epochs=2, seed=0, checkpoint=tmp_path / "run.pt")
    expected = fit(alone, *halves, epochs=2, seed=0)
    for found, single in zip(history, expected, strict=True):
        assert (found.forward_steps, found.backward_steps) == (single.forward_steps, single.backward_steps)
        assert found.alpha == (*single.alpha, None)
    again = fit(Pair(lambda model: not model.training), *halves, epochs=2, seed=0, checkpoint=tmp_path / "run.pt")
    assert again == history
    assert History.from_list(json.loads(json.dumps(history.to_list()))) == history


def test_a_layer_used_in_some_batches_counts_in_those(halves):
    reports, calls = [], []

    def first_of_two(model):
        calls.append(model.training)
        return model.training and len(calls) == 1

    pair = Pair(first_of_two)
    pair.second.equilibrium.register_forward_hook(lambda layer, *_: reports.append(layer.forward_report))
    pair.first.equilibrium.register_forward_hook(lambda layer, *_: reports.append(layer.forward_report) if layer.training else None)
    history = fit(pair, *halves, epochs=1, seed=0, batch_size=100)
    assert len(reports) == 3
    assert history[0].forward_steps == sum(report.steps for report in reports) / 2
    assert None not in history[0].alpha


def test_a_learning_rate_far_too_high_raises_what_the_docstring_says(halves):
    with pytest.raises(ConvergenceError):
        fit(monotone(), *halves, epochs=5, seed=0, learning_rate=1.0)
    spoiled = monotone()
    with torch.no_grad():
        spoiled.equilibrium.injection.weight[0, 0] = math.nan
    with pytest.raises(ValueError, match="NaN"):
        fit(spoiled, *halves, epochs=1, seed=0)
    raises = fit.__doc__.split("Raises")[1]
    assert "ConvergenceError" in raises and "NaN or infinite" in raises


# Checkpoints


class Interrupted(nn.Module):
    """Raises KeyboardInterrupt in its n-th training batch."""

    def __init__(self, n):
        super().__init__()
        self.left = n

    def forward(self, model, inputs):
        if model.training:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt


RUNS = {
    "dropout, one cycle": (noisy, {"schedule": OneCycle(0.01, up=2, down=2, hold=1)}, False),
    "augmentation, step decay": (perceptron, {"schedule": StepDecay(2)}, True),
    "equilibrium, alpha tuned": (monotone, {"learning_rate": 1e-2}, False),
}


@pytest.mark.parametrize("batches_before", [8, 9, 11], ids=["between epochs", "early in an epoch", "late in an epoch"])
@pytest.mark.parametrize("name", RUNS)
def test_an_interrupted_run_resumes_bit_for_bit(halves, tmp_path, name, batches_before):
    make, options, augment = RUNS[name]
    train, test = halves
    train = train.augmented() if augment else train
    options = {"seed": 0, "epochs": 4, "batch_size": 50, **options}
    whole = make()
    expected = fit(whole, train, test, **options)

    path = tmp_path / "run.pt"
    broken = make()
    handle = broken.register_forward_pre_hook(Interrupted(batches_before).forward)
    with pytest.raises(KeyboardInterrupt):
        fit(broken, train, test, checkpoint=path, **options)
    handle.remove()
    torch.manual_seed(123)  # as in a new process: another random state, another initial model
    resumed = make(seed=99)
    history = fit(resumed, train, test, checkpoint=path, **options)
    assert history == expected
    assert same_weights(resumed, whole)


def test_a_finished_run_can_be_lengthened(halves, tmp_path):
    options = {"seed": 0, "checkpoint": tmp_path / "new folder" / "run.pt", "schedule": OneCycle(0.01, 2, 2, 1)}
    straight, stopped = noisy(), noisy()
    expected = fit(straight, *halves, epochs=4, seed=0, schedule=options["schedule"])
    fit(stopped, *halves, epochs=2, **options)
    assert fit(noisy(7), *halves, epochs=4, **options) == expected
    again = noisy(8)
    assert fit(again, *halves, epochs=4, **options) == expected  # nothing left to do
    assert same_weights(again, straight)


def test_a_failing_disk_leaves_the_last_checkpoint_whole(halves, tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    options = {"seed": 0, "checkpoint": path, "batch_size": 50}
    fit(noisy(), *halves, epochs=2, **options)
    before = path.read_bytes()

    def full(*_):
        assert len(os.listdir(tmp_path)) == 2  # the new bytes are beside the old ones
        raise OSError("No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "fsync", full)
        fit(noisy(), *halves, epochs=3, **options)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.pt"]
    assert len(fit(noisy(), *halves, epochs=3, **options)) == 3


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"seed": 1}, "seed"),
        ({"batch_size": 40}, "batch_size"),
        ({"learning_rate": 2e-3}, "learning_rate"),
        ({"schedule": StepDecay(3)}, "schedule"),
        ({"model": lambda: MLP(widths=(13,))}, "model"),
        ({"model": lambda: FullyConnectedMON(units=12)}, "model"),
        ({"train": lambda train: train.take(190)}, "train"),
        ({"train": lambda train: train.augmented()}, "train"),
        ({"test": lambda test: test.take(90)}, "test"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_checkpoint_of_another_run_is_refused_and_kept(halves, tmp_path, changed, name):
    path = tmp_path / "run.pt"
    options = {"epochs": 1, "seed": 0, "checkpoint": path}
    fit(perceptron(), *halves, **options)
    before = path.read_bytes()
    changed = dict(changed)
    train, test = changed.pop("train", lambda x: x)(halves[0]), changed.pop("test", lambda x: x)(halves[1])
    model = changed.pop("model", perceptron)()
    weights = [p.clone() for p in model.parameters()]
    with pytest.raises(CheckpointError, match=rf"another run, it differs in .*\b{name}\b"):
        fit(model, train, test, **{**options, **changed})
    assert path.read_bytes() == before
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))


class Plain(Schedule):
    """No dataclass, and the repr of every object."""

    def __init__(self, factor, shape):
        self.factor, self.shape = factor, shape

    def at(self, position, learning_rate):
        return self.shape(self.factor * learning_rate), 0.9


def same(rate):
    return rate


def slower(rate):
    return rate / 2


class Callback(nn.Module):
    """Its repr holds the address of an object that is alive as long as the tests, so that no two have the same."""

    things: ClassVar[list] = []

    def __init__(self):
        super().__init__()
        self.thing, self.linear = object(), nn.Linear(784, 10)
        self.things.append(self.thing)

    def extra_repr(self):
        return f"{self.thing!r}"

    def forward(self, x):
        return self.linear(x.flatten(1))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"learning_rate": 1e-3}, {"learning_rate": np.float64(1e-3)}),
        ({"learning_rate": np.float64(1e-3)}, {"learning_rate": 1e-3}),
        ({"learning_rate": 1}, {"learning_rate": 1.0}),
        ({"batch_size": 50, "seed": 0}, {"batch_size": np.int64(50), "seed": np.int32(0)}),
        ({"schedule": StepDecay(2, 10)}, {"schedule": StepDecay(np.int64(2), np.float64(10.0))}),
        ({"schedule": OneCycle(0.01, momentum=(0.9, 0.8))}, {"schedule": OneCycle(np.float64(0.01), 30.0, momentum=[0.9, 0.8])}),
        ({"schedule": Plain(1.0, same)}, {"schedule": Plain(np.float64(1.0), same)}),
        ({"schedule": Plain(1.0, lambda rate: rate)}, {"schedule": Plain(1.0, lambda rate: rate)}),
        ({"model": Callback}, {"model": Callback}),
    ],
)
def test_equal_settings_are_the_same_run(halves, tmp_path, first, second):
    options = {"seed": 0, "model": perceptron, "checkpoint": tmp_path / "run.pt"}
    for epochs, changed in ((1, first), (2, second)):
        settings = options | changed
        history = fit(settings.pop("model")(), *halves, epochs=epochs, **settings)
    assert len(history) == 2
    assert all(type(rate) is float for rate in history.column("learning_rate"))


@pytest.mark.parametrize("other", [Plain(2.0, same), Plain(1.0, slower), StepDecay(1)])
def test_other_settings_of_a_plain_object_are_another_run(halves, tmp_path, other):
    options = {"epochs": 1, "seed": 0, "checkpoint": tmp_path / "run.pt"}
    fit(perceptron(), *halves, schedule=Plain(1.0, same), **options)
    with pytest.raises(CheckpointError, match="schedule"):
        fit(perceptron(), *halves, schedule=other, **options)


def test_another_activation_or_tolerance_is_another_run(halves, tmp_path):
    options = {"epochs": 1, "seed": 0, "checkpoint": tmp_path / "run.pt"}
    fit(monotone(), *halves, **options)
    for other in (FullyConnectedMON(units=12, activation=prox.Tanh()), monotone(solver=PeacemanRachford(tol=1e-2))):
        with pytest.raises(CheckpointError, match="model"):
            fit(other, *halves, **options)


def test_a_checkpoint_is_not_overwritten_unasked(halves, tmp_path):
    path = tmp_path / "run.pt"
    fit(perceptron(), *halves, epochs=2, seed=0, checkpoint=path)
    with pytest.raises(CheckpointError, match="resume=True"):
        fit(perceptron(), *halves, epochs=2, seed=0, checkpoint=path, resume=False)
    with pytest.raises(CheckpointError, match="2 epochs, more than epochs = 1"):
        fit(perceptron(), *halves, epochs=1, seed=0, checkpoint=path)


class Trap:
    """Runs code when unpickled without weights_only."""

    def __reduce__(self):
        return os.mkdir, ("sprung",)


def sealed(payload):
    """What `fit` would write before and around these bytes."""
    return b"mon_lib training checkpoint 2\n" + hashlib.sha256(payload).digest() + payload


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


DAMAGED = {
    "empty": lambda whole: b"",
    "garbage": lambda whole: b"x" * 99,
    "short": lambda whole: b"junk",
    "byte": lambda whole: b"e",
    "first line": lambda whole: whole[: whole.index(b"\n") + 1],
    "truncated": lambda whole: whole[:5000],
    "longer": lambda whole: whole + b"\0",
    "without a digest": lambda whole: saved({"format": "mon_lib training checkpoint 1", "run": {}}),
    "another dict": lambda whole: saved({"weights": torch.zeros(3)}),
    "malicious": lambda whole: pickle.dumps(Trap(), 2),
    "sealed malicious": lambda whole: sealed(pickle.dumps(Trap(), 2)),
    "sealed garbage": lambda whole: sealed(b"x" * 99),
    "sealed dict": lambda whole: sealed(saved({"weights": torch.zeros(3)})),
    "sealed list": lambda whole: sealed(saved([])),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_checkpoint_is_refused_and_kept(halves, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.pt"
    fit(perceptron(), *halves, epochs=1, seed=0, checkpoint=path)
    path.write_bytes(DAMAGED[kind](path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"run\.pt is not a"):
        fit(perceptron(), *halves, epochs=2, seed=0, checkpoint=path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.pt"]


def test_one_flipped_bit_is_damage_wherever_it_is(halves, tmp_path):
    path = tmp_path / "run.pt"
    fit(perceptron(), *halves, epochs=1, seed=0, checkpoint=path)
    whole = path.read_bytes()
    for position in (*range(0, len(whole), len(whole) // 40), len(whole) // 2, len(whole) - 1):
        flipped = bytearray(whole)
        flipped[position] ^= 1
        path.write_bytes(flipped)
        model = perceptron()
        with pytest.raises(CheckpointError, match=r"run\.pt is not a .*; .*move it away to start afresh"):
            fit(model, *halves, epochs=2, seed=0, checkpoint=path)
        assert path.read_bytes() == flipped and same_weights(model, perceptron())
    path.write_bytes(whole)
    assert len(fit(perceptron(), *halves, epochs=2, seed=0, checkpoint=path)) == 2


@pytest.mark.parametrize("name", ["", "  ", ".", "folder"])
def test_a_checkpoint_is_a_file(halves, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=f"checkpoint = '{name}' names no file; pass the path of one"):
        fit(perceptron(), *halves, epochs=1, seed=0, checkpoint=name)
    assert os.listdir(tmp_path) == ["folder"]


# Errors


@pytest.mark.parametrize("device", ["gpu", "meta", "abacus", "cuda:99", "", 1.5, torch.device("meta")])
def test_a_device_that_cannot_be_used_is_refused_before_anything_moves(halves, device):
    model = perceptron()
    with pytest.raises(ValueError, match=f"device = '{device}' cannot be used here .*; use cpu, or cuda with a GPU"):
        fit(model, *halves, epochs=1, seed=0, device=device)
    assert same_weights(model, perceptron())


def test_a_model_without_numbers_is_refused(halves):
    with pytest.raises(ValueError, match=r"\.weight of the model is on the device meta and has no numbers; build the model on cpu"):
        fit(perceptron().to("meta"), *halves, epochs=1, seed=0)
    model = perceptron()
    model.register_buffer("shift", torch.zeros(1, device="meta"))
    with pytest.raises(ValueError, match="shift of the model is on the device meta"):
        fit(model, *halves, epochs=1, seed=0, device="cpu")


def test_a_loss_that_is_not_finite_stops_before_it_spoils_the_weights(halves):
    class Explodes(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(784, 10)
            self.batches = 0

        def forward(self, x):
            self.batches += self.training
            return self.linear(x.flatten(1)) * (math.inf if self.batches == 6 else 1.0)

    model = Explodes()
    with pytest.raises(FloatingPointError, match="epoch 2, batch 2: lower learning_rate"):
        fit(model, *halves, epochs=3, seed=0, batch_size=50)
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"epochs": 0}, ValueError, "epochs = 0"),
        ({"epochs": 1.5}, ValueError, r"epochs = 1\.5"),
        ({"batch_size": 0}, ValueError, "batch_size = 0"),
        ({"seed": None}, ValueError, "seed = None"),
        ({"learning_rate": -1.0}, ValueError, r"learning_rate = -1\.0"),
        ({"learning_rate": math.nan}, ValueError, "learning_rate = nan"),
        ({"schedule": "cosine"}, TypeError, "schedule is a str"),
        ({"schedule": StepDecay}, TypeError, r"the class StepDecay; .* write StepDecay\(\.\.\.\)"),
        ({"model": nn.Flatten()}, ValueError, "no parameters"),
        ({"train": [1, 2]}, TypeError, "train is a list"),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(784, 7))}, ValueError, r"\(128, 7\), expected \(128, 10\)"),
        ({"optimizer": "sgd"}, TypeError, "optimizer"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_arguments_are_named(halves, change, error, message):
    options = {"model": perceptron(), "train": halves[0], "test": halves[1], "epochs": 1, "seed": 0} | change
    with pytest.raises(error, match=message):
        fit(options.pop("model"), options.pop("train"), options.pop("test"), **options)


# History


def test_history_survives_json():
    history = History([Epoch(1, 0.5, 0.6, 0.7, 1e-3, 9.5, 8.25, (0.5,), 1.25)])
    assert History.from_list(json.loads(json.dumps(history.to_list()))) == history
    slower = History([Epoch(1, 0.5, 0.6, 0.7, 1e-3, 9.5, 8.25, (0.5,), 99.0)])
    assert slower == history
    assert slower != History()
    assert "test_accuracy=0.7" in repr(history)
    assert repr(History()) == "History(no epochs)"
    with pytest.raises(ValueError, match="train_loss"):
        history.column("accuracy")


def test_a_run_with_other_frozen_parameters_is_another_run(halves, tmp_path):
    model = perceptron()
    next(model.parameters()).requires_grad_(False)
    fit(model, *halves, epochs=1, seed=0, checkpoint=tmp_path / "run.pt")
    with pytest.raises(CheckpointError, match="parameters"):
        fit(perceptron(), *halves, epochs=2, seed=0, checkpoint=tmp_path / "run.pt")


def test_arguments_that_make_no_sense_are_named(halves):
    for settings, error, message in (
        ({"learning_rate": "a"}, TypeError, "learning_rate = 'a' is str"),
        ({"learning_rate": None}, TypeError, "learning_rate = None is NoneType"),
        ({"seed": 2**64}, ValueError, "seed = 18446744073709551616 is too large"),
    ):
        with pytest.raises(error, match=message):
            fit(perceptron(), *halves, **{"epochs": 1, "seed": 0, **settings})
    with pytest.raises(TypeError, match="model is a NoneType"):
        fit(None, *halves, epochs=1, seed=0)
    with pytest.raises(ValueError, match="no parameters to train"):
        fit(perceptron().requires_grad_(False), *halves, epochs=1, seed=0)


# --- densities


class Noisy(torch.nn.Module):
    """The squared distance of an image, with noise, to a learned one: its least mean is at the mean of the images."""

    def __init__(self):
        super().__init__()
        self.centre = torch.nn.Parameter(torch.zeros(1, 28, 28))

    def forward(self, x):
        return (x + 0.01 * torch.randn_like(x) - self.centre).square().flatten(1).mean(1)


def test_a_density_is_trained_and_measured_without_labels():
    train, test = data.load("mnist-5k").take(100).as_pixels(), data.load("mnist-5k", train=False).take(50).as_pixels()
    assert float(train.images.min()) == 0.0 and float(train.images.max()) == 1.0
    torch.manual_seed(0)
    model = Noisy()
    before = Density().measure(model, test)
    history = fit(
        model, train, test, epochs=6, seed=0, objective=Density(), batch_size=25, learning_rate=0.05, progress=False,
    )  # fmt: skip
    assert before[1] is None and history.column("test_accuracy") == [None] * 6
    assert history[-1].test_loss < 0.8 * before[0]
    assert (model.centre - train.images.mean(0)).abs().max() < 0.15
    assert Density().measure(model, test) == Density().measure(model, test) == (history[-1].test_loss, None)  # one noise
    assert Density(1).measure(model, test) != Density().measure(model, test)
    assert History.from_list(history.to_list()) == history and "accuracy" not in repr(history)


def test_a_density_resumes_and_its_checkpoint_is_not_a_classifiers(tmp_path):
    train = data.load("mnist-5k").take(60).as_pixels()
    options = {"seed": 3, "objective": Density(), "batch_size": 20, "progress": False}

    def trained(epochs, checkpoint=None):
        model = Noisy()
        return model, fit(model, train, train.take(20), epochs=epochs, checkpoint=checkpoint, **options)

    whole, history = trained(4)
    trained(2, tmp_path / "run.pt")
    model, resumed = trained(4, tmp_path / "run.pt")
    assert torch.equal(model.centre, whole.centre) and resumed == history
    with pytest.raises(CheckpointError, match="objective"):
        fit(Noisy(), train, train.take(20), epochs=4, checkpoint=tmp_path / "run.pt", **(options | {"objective": Density(7)}))


def test_an_objective_is_an_object_and_gets_what_it_expects():
    train = data.load("mnist-5k").take(20)
    with pytest.raises(TypeError, match="objective is Density; pass an object"):
        fit(Noisy(), train, train, epochs=1, seed=0, objective=Density)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    with pytest.raises(ValueError, match=r"shape \(20, 10\), expected one number for each image"):
        fit(model, train, train, epochs=1, seed=0, objective=Density(), progress=False)
    with pytest.raises(ValueError, match=r"shape of no tensor but a tuple, expected one number"):
        Density().measure(Returns(lambda x: (x,)), train)
    with pytest.raises(ValueError, match=r"shape \(20, 10\), expected one number .* training\.evaluate\(model, images\)"):
        Density().measure(model, train)  # whose sum of logits would look like a loss


class Returns(torch.nn.Module):
    """Whatever the function gives."""

    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, torch.nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.function(x)


def test_a_density_taken_for_a_classifier_is_told_what_it_needs():
    images = data.load("mnist-5k").take(20).as_pixels()
    flow = Glow((1, 28, 28), levels=1, steps=1, hidden=4)
    hint = r"shape \(20,\), .*a density .* objective=training\.Density\(\), .* training\.Density\(\)\.measure\(model, images\)"
    with pytest.raises(ValueError, match=hint):
        fit(flow, images, images, epochs=1, seed=0)
    with pytest.raises(ValueError, match=hint):
        evaluate(flow, images)
    with pytest.raises(ValueError, match=r"\(20, 7\), expected \(20, 10\), one for each class"):
        evaluate(Returns(lambda x: x.new_zeros(len(x), 7)), images)
    assert evaluate(Returns(lambda x: x.new_zeros(len(x), 10)), images)[0] == pytest.approx(math.log(10))


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        ("a", TypeError, "seed = 'a' is str; pass an integer, such as 0"),
        (1.5, TypeError, r"seed = 1\.5 is float; pass an integer"),
        (None, TypeError, "seed = None is NoneType"),
        (True, TypeError, "seed = True is bool"),
        (-1, ValueError, "seed = -1 must be from 0"),
        (2**63, ValueError, r"seed = 9223372036854775808 must be from 0 to 2\*\*63 - 1"),
    ],
)
def test_the_seed_of_a_density_is_checked_when_it_is_made(seed, error, message):
    with pytest.raises(error, match=message):
        Density(seed)
    assert repr(Density(np.int64(3))) == "Density(seed=3)" and Density(2**63 - 1).seed == 2**63 - 1
