"""Chapter 13: the counts as formulas (MON-D1), the structure of W on few digits (MON-TAB1), translation, and what a page says
about data and runs that are not there."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import avg_pool2d, cross_entropy, pad

from mon_lib import data, experiments, prox, training
from mon_lib.networks import ConvolutionalMON, FullyConnectedMON, MultiTierMON, count_parameters
from mon_lib.operators import Convolution
from mon_lib.splitting import PeacemanRachford

CHAPTER = Path(__file__).parents[2] / "book" / "13_training_images.ipynb"


def code(word):
    """The code cells of the chapter that hold a word."""
    cells = json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
    return [source for cell in cells if cell["cell_type"] == "code" and word in (source := "".join(cell["source"]))]


@pytest.fixture(scope="module")
def formulas():
    """The functions that the chapter counts with."""
    (source,) = code("def single_count")
    scope = {}
    exec(source.partition("\nformula = ")[0], scope)  # the loop below needs the whole chapter
    return scope


@pytest.mark.claim("MON-D1")
@pytest.mark.parametrize(("n", "c", "s", "K"), [(1, 1, 4, 2), (5, 3, 12, 10), (9, 2, 20, 3)])
def test_the_formulas_count_what_the_networks_learn(formulas, n, c, s, K):
    dense = FullyConnectedMON(c * s * s, n, K)
    assert count_parameters(dense) == formulas["dense_count"](n, c, s, K)
    for crop in (True, False):  # the border changes nothing, since less than a square of four by four is left over
        single = ConvolutionalMON(c, s, n, K, crop=crop)
        assert count_parameters(single) == formulas["single_count"](n, c, s, K)
    for tiers in ((n, 2), (n, 4, 3)):
        assert count_parameters(MultiTierMON(c, s, tiers, K)) == formulas["multi_tier_count"](tiers, c, s, K)


def halved(images):
    return replace(images, images=avg_pool2d(pad(images.images, (2,) * 4, value=float(-images.mean / images.std)), 2))


@pytest.fixture(scope="module")
def digits():
    return halved(data.load("mnist-5k").take(800)), halved(data.load("mnist-5k", train=False))


@pytest.fixture(scope="module")
def runs(digits):
    """A single convolution and a dense network with as many parameters, trained alike on 800 small digits."""
    found = {}
    for name, build in (
        ("single", lambda: ConvolutionalMON(image_size=16, channels=14)),
        ("dense", lambda: FullyConnectedMON(256, 19)),
    ):
        torch.manual_seed(0)
        model = build()
        before = model.equilibrium.operator.lipschitz()
        schedule = training.OneCycle(peak=2e-2, up=1.5, down=2.5, hold=0)
        history = training.fit(model, *digits, epochs=4, seed=0, learning_rate=2e-3, schedule=schedule, batch_size=32)
        found[name] = model, before, history
    return found


@pytest.mark.claim("MON-TAB1")
def test_a_convolution_sees_more_than_a_dense_matrix_of_its_size(runs):
    single, dense = (runs[name][0] for name in ("single", "dense"))
    assert abs(count_parameters(single) / count_parameters(dense) - 1) < 0.03
    ahead = runs["single"][2][-1].test_accuracy - runs["dense"][2][-1].test_accuracy
    assert ahead > 0.01
    assert runs["single"][2][-1].test_accuracy > 0.85


@pytest.mark.claim("MON-TAB1")
def test_the_runs_on_file_are_as_the_chapter_says():
    """Every seed of the convolutional networks is ahead of every seed of the dense one."""
    accuracies = {}
    for kind in ("fully-connected", "single", "multi-tier"):
        rows = experiments.summary([f"mnist-5k-{kind}"], "quick")
        accuracies[kind] = [run["accuracy"] for row in rows if row["runs"] and row["current"] for run in row["runs"]]
    if not all(accuracies.values()):
        pytest.skip("not run: python -m mon_lib.experiments run mnist-5k-fully-connected mnist-5k-single mnist-5k-multi-tier")
    dense = max(accuracies["fully-connected"])
    assert min(accuracies["single"]) > dense
    assert min(accuracies["multi-tier"]) > dense


@pytest.mark.claim("MON-FIG2")
def test_a_chosen_alpha_keeps_the_steps_of_a_convolution_down(runs, digits):
    model, before, history = runs["single"]
    assert model.equilibrium.operator.lipschitz() > 1.5 * before
    steps = []
    for alpha in (history[-1].alpha[0], 1.0):
        twin = copy.deepcopy(model)
        twin.equilibrium.solver = PeacemanRachford(alpha=alpha, tol=1e-3)
        cross_entropy(twin(digits[1].images[:64]), digits[1].labels[:64]).backward()
        steps.append((twin.equilibrium.forward_report.steps, twin.equilibrium.backward_report.steps))
    assert steps[0][0] < steps[1][0]
    assert steps[0][1] < steps[1][1]


@pytest.mark.parametrize("size", [(7, 10), (8, 8)], ids=str)
def test_equilibria_translate_unless_a_border_is_held_at_zero(size):
    torch.manual_seed(0)
    W = Convolution(3, size, dtype=torch.float64)
    bias = torch.randn(2, 3, *size, dtype=torch.float64)
    solver = PeacemanRachford(tol=1e-12)
    for shift in ((1, 0), (2, -3)):
        moved = torch.roll(bias, shift, (-2, -1))
        gaps = []
        for s in (prox.ReLU(), prox.Border(prox.ReLU(), 1)):
            z, other = (solver.solve(W, each, s).z for each in (bias, moved))
            gaps.append(float((other - torch.roll(z, shift, (-2, -1))).norm() / z.norm()))
        assert gaps[0] < 1e-10
        assert gaps[1] > 1e-2


def test_without_fashion_mnist_the_chapter_says_so(capsys):
    (source,) = code('data.load("fashion-mnist"')

    class Missing:
        DataUnavailableError = data.DataUnavailableError

        @staticmethod
        def load(*_):
            raise data.DataUnavailableError("fashion-mnist is nowhere")

    class Profile:
        @staticmethod
        def pick(**sizes):
            return sizes["smoke"]

    exec(source, {"data": Missing, "profile": Profile})
    assert capsys.readouterr().out == "Fashion-MNIST is not on this machine: not run here\n"


def test_without_results_the_table_says_so(capsys, monkeypatch, tmp_path):
    """Every row of Table 1 is there, with the paper's accuracy where we have it, and none pretends to have been run."""
    from mon_lib import networks

    (source,) = code("def told")
    monkeypatch.setenv("MON_RESULTS", str(tmp_path / "none"))
    exec(source, {"experiments": experiments, "networks": networks})
    out = capsys.readouterr().out
    for name, row in networks.TABLE_D1.items():
        assert f"{name}: {row.parameters:,d} parameters" in out
    assert out.count("profile paper: not run") == len(networks.TABLE_D1)
    assert "71.8 %" in out and "lost in our text" in out
