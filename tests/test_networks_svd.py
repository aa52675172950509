"""SVD networks: orthogonal maps formed from a free matrix, layers that keep norms, the network of REF 3.1, what it costs."""

import copy
import json
import math
import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from counting import WithSolves
from torch import nn
from torch.nn.utils import parametrizations

from mon_lib import data, experiments, training
from mon_lib.networks import Cayley, MatrixExponential, SVDClassifier, SVDLayer, UniformDraw, count_parameters
from mon_lib.reflections import AuxiliaryReflection, HouseholderProduct

FORMED = {"cayley": Cayley, "matrix_exp": MatrixExponential}
formed = pytest.mark.parametrize("kind", FORMED.values(), ids=FORMED)


def reflections(d):
    return HouseholderProduct(d, d)


MAPS = {"auxiliary": AuxiliaryReflection, "householder": reflections, "cayley": Cayley, "exponential": MatrixExponential}
maps = pytest.mark.parametrize("orthogonal", MAPS.values(), ids=MAPS)


def built(kind, d=5, seed=0):
    torch.manual_seed(seed)
    return kind(d).double()


def rows(*shape, seed=1):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# Maps that are formed


@pytest.mark.parametrize("name", FORMED)
@pytest.mark.parametrize("d", [1, 2, 7])
def test_the_map_is_that_of_torchs_parametrisation(name, d):
    f = built(FORMED[name], d)
    own = parametrizations.orthogonal(nn.Linear(d, d, bias=False).double(), orthogonal_map=name, use_trivialization=False)
    own.parametrizations.weight.original.data.copy_(f.weight.data)
    x = rows(3, d).requires_grad_()
    target = rows(3, d, seed=2)
    assert torch.equal(f.to_dense(), own.weight)
    gradients = []
    for module, weight in ((f, f.weight), (own, own.parametrizations.weight.original)):
        gradients.append(torch.autograd.grad((module(x) * target).sum(), (x, weight)))
    for mine, theirs in zip(*gradients, strict=True):
        assert torch.equal(mine, theirs)


@formed
def test_the_formula(kind):
    f = built(kind)
    A = f.weight.detach().tril(-1)
    A = A - A.T
    eye = torch.eye(5, dtype=torch.float64)
    expected = torch.linalg.inv(eye - A / 2) @ (eye + A / 2) if kind is Cayley else torch.matrix_exp(A)
    Q = f.to_dense().detach()
    torch.testing.assert_close(Q, expected, rtol=0, atol=1e-13)
    torch.testing.assert_close(Q.T @ Q, eye, rtol=0, atol=1e-13)
    assert float(torch.linalg.det(Q)) == pytest.approx(1.0)


@formed
def test_forward_inverse_and_prepared_are_one_matrix(kind):
    f, x = built(kind), rows(2, 3, 5)
    y, Q = f(x), f.to_dense()
    torch.testing.assert_close(y, torch.einsum("ij,abj->abi", Q, x), rtol=0, atol=1e-13)
    torch.testing.assert_close(f.inverse(y), x, rtol=0, atol=1e-13)
    assert torch.equal(f.prepared()(x), y)
    assert f(x[:0]).shape == (0, 3, 5)
    (through,) = torch.autograd.grad((f.prepared()(x) ** 3).sum(), f.weight)
    (expected,) = torch.autograd.grad((f(x) ** 3).sum(), f.weight)
    assert torch.equal(through, expected) and bool(through.tril(-1).any())
    assert not bool(through.triu().any())  # the upper half has no effect


@formed
def test_prepared_forms_the_matrix_once(kind):
    f, calls = built(kind), []
    f.map.register_forward_hook(lambda *_: calls.append(1))
    apply = f.prepared()
    for _ in range(3):
        apply(rows(2, 5))
    assert len(calls) == 1


@formed
def test_the_draw_is_the_papers(kind):
    weight = built(kind, 64).weight.detach()
    assert float(weight.abs().max()) <= 1 / 8
    assert float(weight.std()) == pytest.approx(1 / 8 / math.sqrt(3), rel=0.02)


@formed
def test_a_copy_a_pickle_and_a_state_are_the_same_map(kind):
    f, x = built(kind), rows(4, 5)
    other = built(kind, seed=9)
    other.load_state_dict(f.state_dict())
    assert list(f.state_dict()) == ["weight"]
    for twin in (copy.deepcopy(f), pickle.loads(pickle.dumps(f)), other):
        assert torch.equal(twin(x), f(x))
        with torch.no_grad():
            twin.weight.add_(0.1)
        assert not torch.allclose(twin(x), f(x))  # nothing is kept from before


@formed
def test_a_formed_map_says_what_is_wrong(kind):
    for d, error in ((0, ValueError), (-1, ValueError), ("3", TypeError), (2.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match=f"d = {d!r}"):
            kind(d)
    f = built(kind)
    for apply in (f, f.inverse, f.prepared()):
        with pytest.raises(ValueError, match="vectors of 4"):
            apply(rows(2, 4))
        with pytest.raises(TypeError, match=r"torch\.int64"):
            apply(torch.zeros(2, 5, dtype=torch.int64))
    assert "d=5" in repr(f)


def test_the_cayley_map_of_a_rotation():
    torch.manual_seed(3)
    U = torch.matrix_exp(0.7 * (A := rows(6, 6)).sub(A.T))
    torch.testing.assert_close(Cayley.from_orthogonal(U).to_dense(), U, rtol=0, atol=1e-12)
    half_turn = torch.diag(torch.tensor([-1.0, -1.0, 1.0]))
    with pytest.raises(ValueError, match="eigenvalue -1"):
        Cayley.from_orthogonal(half_turn)
    with pytest.raises(ValueError, match="not orthogonal"):
        Cayley.from_orthogonal(2 * torch.eye(3))


def turned(gap, dtype=torch.float64, d=7):
    """A rotation of planes in general position, one by pi - gap."""
    B = torch.eye(d, dtype=torch.float64)
    for j, angle in enumerate((math.pi - gap, 1.0, 2.5)):
        c, s = math.cos(angle), math.sin(angle)
        B[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
    Q = torch.linalg.qr(rows(d, d, seed=4))[0]
    return (Q @ B @ Q.T).to(dtype)


def distance(f, U):
    return float((f.to_dense().detach().double() - U.double()).abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_cayley_map_near_a_half_turn_is_close_or_refused(dtype):
    """What storing the weight costs, 4 eps / gap, is accepted up to half the digits."""
    eps = torch.finfo(dtype).eps
    for gap in (1.0, 0.1, 5e-3, 1e-3):
        U = turned(gap, dtype)
        assert distance(Cayley.from_orthogonal(U), U) < eps * (10 + 4 / gap)
    if dtype == torch.float64:
        for gap in (1e-5, 1e-6, 3e-7):
            U = turned(gap)
            assert distance(Cayley.from_orthogonal(U), U) < eps * (10 + 4 / gap)
    for gap in (1e-6 * eps**0.5, 0.0):
        with pytest.raises(ValueError, match=r"the map that was made is .* from it .* eigenvalue -1 .* float64, a rotation"):
            Cayley.from_orthogonal(turned(gap, dtype))
    mirror = torch.eye(4, dtype=dtype)
    mirror[0, 0] = -1.0
    with pytest.raises(ValueError, match="eigenvalue -1"):
        Cayley.from_orthogonal(mirror)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_exponential_is_any_rotation(dtype):
    allowed = 40 * torch.finfo(dtype).eps
    for gap in (1.0, 1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-14, 0.0):
        U = turned(gap, dtype)
        f = MatrixExponential.from_orthogonal(U)
        assert f.weight.dtype == dtype and distance(f, U) < allowed
    Q = torch.linalg.qr(rows(6, 6, seed=4))[0]
    for diagonal in ((1, 1, 1, 1, 1, 1), (-1, -1, -1, -1, -1, -1), (-1, 1, -1, -1, -1, 1)):
        for basis in (Q, torch.eye(6, dtype=torch.float64)):
            U = (basis * torch.tensor(diagonal)) @ basis.T
            assert distance(MatrixExponential.from_orthogonal(U.to(dtype)), U.to(dtype)) < allowed
    one = torch.ones(1, 1, dtype=dtype)
    assert torch.equal(MatrixExponential.from_orthogonal(one).to_dense(), one)


def test_equal_angles_have_a_logarithm():
    for angle in (0.3, math.pi / 2, 2.0, math.pi - 1e-9, math.pi):
        plane = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64)
        Q = torch.linalg.qr(rows(12, 12, seed=4))[0]
        U = Q @ torch.block_diag(*[plane] * 3, *[plane.T] * 2, torch.eye(2, dtype=torch.float64)) @ Q.T
        assert distance(MatrixExponential.from_orthogonal(U), U) < 1e-14


def test_a_mirror_has_no_logarithm():
    for diagonal in ((-1.0, 1.0, 1.0), (-1.0, -1.0, -1.0), (-1.0,)):
        with pytest.raises(ValueError, match=r"determinant -1.*one column of U negated"):
            MatrixExponential.from_orthogonal(torch.diag(torch.tensor(diagonal)))
    with pytest.raises(ValueError, match="not orthogonal"):
        MatrixExponential.from_orthogonal(2 * torch.eye(3))


@pytest.mark.parametrize(("size", "fault"), [(1.0, 1e-4), (100.0, 1e-3), (1000.0, 3e-2)])
def test_large_weights_cost_an_exponential_digits(size, fault):
    """The sizes of the docstring, and that float64 is the remedy."""
    torch.manual_seed(0)
    f = MatrixExponential(100)
    nn.init.uniform_(f.weight, -size, size)
    lost = []
    for g in (f, copy.deepcopy(f).double()):
        Q = g.to_dense().detach().double()
        lost.append(float(torch.linalg.matrix_norm(Q.T @ Q - torch.eye(100, dtype=torch.float64), 2)))
    assert lost[0] < fault
    assert lost[1] < 1e-9


@formed
@pytest.mark.parametrize("short", [torch.float16, torch.bfloat16], ids=str)
def test_short_formats_are_computed_in_float32(kind, short):
    f, x = built(kind).float(), rows(3, 5).float()
    expected = f(x).detach()
    assert f(x.to(short)).dtype == short
    torch.testing.assert_close(f(x.to(short)), f(x.to(short).float()).to(short), rtol=0, atol=0)
    f.to(short)
    for apply in (f, f.inverse, f.prepared()):
        for given in (x, x.to(short)):
            assert apply(given).dtype == given.dtype
    assert f.to_dense().dtype == short
    torch.testing.assert_close(f(x).detach(), expected, rtol=0, atol=0.1)
    f(x).sum().backward()
    assert f.weight.grad.dtype == short and bool(f.weight.grad.any())


@formed
def test_autocast_changes_nothing(kind):
    f, x = built(kind).float(), rows(3, 5).float()
    expected = [f(x), f.inverse(x), f.prepared()(x), f.to_dense()]
    with torch.autocast("cpu", torch.bfloat16):
        found = [f(x), f.inverse(x), f.prepared()(x), f.to_dense()]
    for got, want in zip(found, expected, strict=True):
        assert got.dtype == torch.float32 and torch.equal(got, want)


@formed
def test_another_dtype_is_named(kind):
    f = kind(5)
    for name, apply in {"x": f, "y": f.inverse}.items():
        with pytest.raises(TypeError, match=rf"{name} is torch\.float64, the parameters are torch\.float32; convert one"):
            apply(rows(2, 5))
    with pytest.raises(TypeError, match=r"x is torch\.float64"):
        f.prepared()(rows(2, 5))


# Layers and networks


@maps
def test_a_layer_is_two_maps_and_a_scale(orthogonal):
    layer, x = built(partial(SVDLayer, orthogonal=orthogonal), 6), rows(2, 3, 6)
    assert torch.equal(layer(x), layer.U(layer.V(x) * layer.sigma))
    assert layer.U is not layer.V
    assert not torch.equal(next(layer.U.parameters()), next(layer.V.parameters()))
    assert bool(((layer.sigma >= 0.99) & (layer.sigma <= 1.01)).all())
    assert len(layer.sigma.detach().unique()) == 6


@pytest.mark.claim("REF-31")
@maps
def test_a_layer_stretches_between_the_extremes_of_sigma(orthogonal):
    """||y|| is between min|sigma| and max|sigma| times ||x||, and both are reached."""
    layer = built(partial(SVDLayer, orthogonal=orthogonal), 6)
    with torch.no_grad():
        layer.sigma.copy_(torch.tensor([0.5, -3.0, 1.0, 1.5, -2.0, 0.7]))
    x = rows(4000, 6)
    gain = (layer(x).norm(dim=1) / x.norm(dim=1)).detach()
    assert 0.5 - 1e-12 < gain.min() < 0.9
    assert 2.2 < gain.max() < 3.0 + 1e-12


@pytest.mark.claim("REF-31")
def test_distances_are_bounded_for_matrices_and_not_for_auxiliary_reflections():
    """Both keep norms; sigma bounds what a layer does to a difference only where the maps are linear."""
    x = rows(3000, 6)
    near = x + 1e-6 * rows(3000, 6, seed=5)
    stretched = {}
    for name, orthogonal in MAPS.items():
        layer = built(partial(SVDLayer, orthogonal=orthogonal), 6)
        with torch.no_grad():
            moved = (layer(near) - layer(x)).norm(dim=1) / (near - x).norm(dim=1) / layer.sigma.max()
        stretched[name] = float(moved.max())
    assert stretched.pop("auxiliary") > 2
    assert max(stretched.values()) < 1 + 1e-8


@maps
def test_a_network_is_layers_relu_and_a_readout(orthogonal):
    model = built(partial(SVDClassifier, classes=3, layers=2, orthogonal=orthogonal), 6)
    x = rows(4, 1, 2, 3)
    h = x.flatten(1)
    layers = [module for module in model if isinstance(module, SVDLayer)]
    assert len(layers) == 2
    for layer in layers:
        h = layer(h).relu()
    assert torch.equal(model(x), model[-1](h))
    assert model[-1].weight.shape == (3, 6)


@maps
def test_gradients_of_a_network(orthogonal):
    model = built(partial(SVDClassifier, classes=2, layers=1, orthogonal=orthogonal), 4)
    parameters = dict(model.named_parameters())
    x = rows(3, 4)

    def run(*values):
        return torch.func.functional_call(model, dict(zip(parameters, values, strict=True)), x)

    assert torch.autograd.gradcheck(run, tuple(parameters.values()))


@pytest.mark.claim("REF-31")
def test_the_networks_of_the_paper_have_one_size():
    """Three layers of two maps with 784 x 784 numbers each and 784 singular values; a readout of 784 x 10, and its offset."""
    expected = 3 * (2 * 784**2 + 784) + 784 * 10 + 10
    for kind in ("auxiliary", "householder", "householder-uniform", "cayley", "exponential"):
        entry = experiments.EXPERIMENTS[f"svd-mnist-5k-{kind}"]
        assert entry.claim == "REF-31" and entry.parameters == expected == count_parameters(entry.build("paper"))
        assert (entry.paper.data, entry.quick.data) == ("mnist", "mnist-5k")
        assert (entry.paper.learning_rate, entry.paper.schedule) == (1e-3, training.Constant())
    assert len({(entry.paper, entry.quick) for name, entry in experiments.EXPERIMENTS.items() if name.startswith("svd-")}) == 1


def test_the_uniform_draw():
    torch.manual_seed(0)
    module = UniformDraw(reflections)(64)
    assert isinstance(module, HouseholderProduct) and module.k == 64
    assert 0.99 / 8 < float(module.vectors.detach().abs().max()) <= 1 / 8
    assert float(reflections(64).vectors.detach().abs().max()) > 2  # its own draw is another


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"features": 0}, ValueError, "features = 0"),
        ({"classes": 0}, ValueError, "classes = 0"),
        ({"layers": 0}, ValueError, "layers = 0"),
        ({"layers": "3"}, TypeError, "layers = '3'"),
        ({"orthogonal": AuxiliaryReflection(6)}, TypeError, "orthogonal is a AuxiliaryReflection; pass what makes"),
        ({"orthogonal": "cayley"}, TypeError, "orthogonal is a str; pass what makes"),
        ({"orthogonal": lambda d: d}, TypeError, r"orthogonal\(6\) returned a int"),
        ({"orthogonal": UniformDraw(lambda d: d)}, TypeError, r"orthogonal\(6\) returned a int"),
    ],
)
def test_a_network_says_what_is_wrong(options, error, message):
    with pytest.raises(error, match=message):
        SVDClassifier(**{"features": 6} | options)


def test_an_image_of_another_size_is_named():
    with pytest.raises(ValueError, match="vectors of 5"):
        SVDClassifier(6)(torch.zeros(2, 5))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.zeros(16), ValueError, r"x has shape \(16,\): no axis for a batch; pass a batch of shape \(batch, 16\)"),
        (torch.tensor(1.0), ValueError, r"x has shape \(\)"),
        (torch.zeros(2, 1, 4, 5), ValueError, r"x has shape \(2, 1, 4, 5\): vectors of 20"),
        (torch.zeros(2, 16, dtype=torch.float64), TypeError, r"x has dtype torch\.float64.*pass x\.to\(torch\.float32\)"),
        (torch.zeros(2, 16, dtype=torch.uint8), TypeError, r"x has dtype torch\.uint8.* / 255"),
        ([[0.0] * 16], TypeError, "x is list; pass a torch.Tensor"),
    ],
    ids=str,
)
def test_what_is_no_batch_is_named(x, error, message):
    with pytest.raises(error, match=message):
        SVDClassifier(16, 3)(x)


def test_an_empty_batch_has_no_logits():
    assert SVDClassifier(16, 3)(torch.zeros(0, 1, 4, 4)).shape == (0, 3)


# What it costs


def work(module, N):
    x = torch.randn(N, module.d, requires_grad=True)
    with WithSolves() as count:
        module(x).sum().backward()
    return count.total


@pytest.mark.claim("REF-31")
@pytest.mark.parametrize(("d", "N", "b"), [(24, 5, 8), (48, 16, 16), (64, 64, 16)])
def test_a_pass_costs_what_the_chapter_counts(d, N, b):
    """In multiplications, forward and backward: svd-cost."""
    assert work(AuxiliaryReflection(d), N) == 3 * N * d**2
    assert work(Cayley(d), N) == pytest.approx(3 * N * d**2 + 10 / 3 * d**3, rel=1e-12)
    product = HouseholderProduct(d, d, block=b)
    assert work(product, N) == 6 * N * d * d + 6 * b * d * d + 2 * b**2 * d


# The runs on file


@pytest.mark.claim("REF-31")
def test_it_learns_and_one_reflection_keeps_up():
    """A short run at a quarter of the width and height: one auxiliary reflection a map against d reflections a map."""
    train, test = data.load("mnist-5k").take(1000), data.load("mnist-5k", train=False).take(300)
    small = [replace(half, images=nn.functional.avg_pool2d(half.images, 4)) for half in (train, test)]
    accuracy = {}
    for name in ("auxiliary", "householder"):
        torch.manual_seed(0)
        model = SVDClassifier(49, orthogonal=MAPS[name])
        accuracy[name] = training.fit(model, *small, epochs=4, seed=0, batch_size=25)[-1].test_accuracy
    assert accuracy["auxiliary"] > 0.75
    assert accuracy["auxiliary"] > accuracy["householder"] - 0.03


@pytest.mark.claim("REF-31")
def test_the_runs_on_file_are_as_the_chapter_says():
    """The auxiliary reflections end with the smallest mean error, and their epochs are the shortest."""
    error, seconds = {}, {}
    for kind in ("auxiliary", "householder", "cayley", "exponential"):
        rows = experiments.summary([f"svd-mnist-5k-{kind}"], "quick")
        histories = [
            training.History.from_list(r["history"]) for row in rows if row["runs"] and row["current"] for r in row["runs"]
        ]
        if len(histories) < 2:
            pytest.skip(f"not run with two seeds: python -m mon_lib.experiments run svd-mnist-5k-{kind}")
        error[kind] = sum(1 - history[-1].test_accuracy for history in histories) / len(histories)
        seconds[kind] = sum(sum(history.column("seconds")) for history in histories) / len(histories)
    assert min(error, key=error.get) == min(seconds, key=seconds.get) == "auxiliary"


def test_without_results_the_chapter_says_so(monkeypatch, tmp_path, capsys):
    """No name in the figure and no row of the table pretends to have been run."""
    cells = json.loads((Path(__file__).parents[1] / "book" / "19_svd_networks.ipynb").read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (load,), (table,) = ([s for s in sources if word in s] for word in ("def filed", "def told"))
    monkeypatch.setenv("MON_RESULTS", str(tmp_path / "none"))
    names = dict.fromkeys(("auxiliary", "product", "Cayley", "exponential"))
    scope = {"experiments": experiments, "COLOURS": dict(names), "INK": dict(names), "DASH": dict(names), "MAPS": names}
    exec(load + "\n" + table, scope)
    out = capsys.readouterr().out
    assert all(f"{name}: not run with two or more seeds" in out for name in scope["KINDS"])
    assert out.count("profile paper") == out.count(": not run\n") == 5


@pytest.mark.parametrize("kind", [Cayley, MatrixExponential])
def test_the_inverse_of_a_formed_matrix_refuses_what_is_not_finite(kind):
    with pytest.raises(ValueError, match="y has 1 NaN or infinite entries of 4"):
        kind(4).inverse(torch.tensor([0.0, 1.0, math.inf, 0.0]))


def test_a_half_turn_has_no_finite_weight():
    with pytest.raises(ValueError, match="no finite weight makes it"):
        Cayley.from_orthogonal(-torch.eye(4))
