"""The recurrent network: against a plain loop, its start, its activation, and the rotations that transitions begin at."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from mon_lib.networks import Cayley, MatrixExponential, PixelSequence, ReflectionRNN, cayley_initialisation, henaff_initialisation
from mon_lib.networks.recurrent import modrelu
from mon_lib.reflections import AuxiliaryReflection, HouseholderProduct, householder

F64 = torch.float64
STARTS = (cayley_initialisation, henaff_initialisation)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def starting_at(U):
    """The kinds of transition that can begin at any rotation (the Cayley map: without half turns)."""
    return [kind.from_orthogonal(U) for kind in (AuxiliaryReflection, HouseholderProduct, Cayley, MatrixExponential)]


def network(transition=AuxiliaryReflection, d=6, inputs=3, **options):
    model = ReflectionRNN(inputs, d, 4, transition, **options).double()
    with torch.no_grad():
        model.bias.uniform_(-0.1, 0.1)  # some states are cut off, some are not
    return model


def share(first, *others):
    """Give the others everything of the first but its transition."""
    own = {name: value for name, value in first.state_dict().items() if not name.startswith("transition")}
    for other in others:
        assert all(name.startswith("transition") for name in other.load_state_dict(own, strict=False).missing_keys)


def plain_loop(model, x):
    """The definition, a step and a sample at a time, with the reflection spelled out."""
    W = model.transition.weight
    logits = []
    for sequence in x:
        h = model.h0
        for entry in sequence:
            u = W @ h
            z = h - 2 * u * (u @ h) / (u @ u) + model.inject.weight @ entry
            h = z.sign() * (z.abs() + model.bias).clamp(min=0)
        logits.append(model.readout.weight @ h + model.readout.bias)
    return torch.stack(logits)


@pytest.mark.claim("REF-32")
def test_values_and_gradients_are_those_of_the_definition():
    model, x = network(), torch.randn(5, 7, 3, dtype=F64, requires_grad=True)
    parameters = [x, *model.parameters()]
    found, expected = model(x), plain_loop(model, x)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    mine, theirs = (torch.autograd.grad((y * weights).sum(), parameters) for y in (found, expected))
    for got, want in zip(mine, theirs, strict=True):
        torch.testing.assert_close(got, want)
    assert all(float(g.abs().max()) > 0 for g in mine)


def test_gradients_by_differences():
    model, x = network(d=4, inputs=2), torch.randn(2, 3, 2, dtype=F64, requires_grad=True)
    names, values = zip(*((n, p.detach().clone().requires_grad_()) for n, p in model.named_parameters()), strict=True)

    def f(x, *values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), x)

    assert torch.autograd.gradcheck(f, (x, *values))


def test_the_states_are_all_there_and_keep_their_norm_without_input():
    model, x = network(d=7), torch.zeros(2, 30, 3, dtype=F64)
    with torch.no_grad():
        model.bias.zero_()
        h = model.states(x)
        assert len(h) == 31
        for state in h:
            torch.testing.assert_close(state.norm(dim=-1), model.h0.norm().expand(2))
        assert (h[1] - h[0]).norm() > 0.1
        torch.testing.assert_close(model.readout(h[-1]), model(x))


def test_the_gradient_keeps_one_direction_whatever_the_weights():
    """Jh_0 = h_T and J'h_T = h_0, while other singular values are far from 1; at W = I - U all of them are 1."""
    x, spread = torch.zeros(1, 10, 1, dtype=F64), []
    for f in (AuxiliaryReflection(5).double(), AuxiliaryReflection.from_orthogonal(henaff_initialisation(5, F64))):
        model = ReflectionRNN(1, 5, 2, f).double()

        def run(h, model=model):
            return torch.func.functional_call(model, {"h0": h}, (x,))

        model.readout = nn.Identity()
        h = model.h0.detach()
        end, J = run(h).detach()[0], torch.func.jacrev(run)(h).detach()[0]
        torch.testing.assert_close(J @ h, end)
        torch.testing.assert_close(J.T @ end, h)
        s = torch.linalg.svdvals(J)
        assert float((s - 1).abs().min()) < 1e-9
        spread.append(float((s - 1).abs().max()))
    assert spread[0] > 0.1 and spread[1] < 1e-9


# The start


def test_the_drawn_start_is_as_wide_as_it_should_be():
    h0 = ReflectionRNN(1, 20_000, 2, nn.Identity()).h0.detach()
    assert float(h0.square().sum()) == pytest.approx(0.5, rel=0.03)
    assert float(h0.abs().max()) <= math.sqrt(1.5 / 20_000)


def test_the_start_is_learned_or_not():
    given = torch.full((6,), 0.3, dtype=F64)
    x = torch.randn(2, 4, 3, dtype=F64)
    for learn in (True, False):
        model = network(h0=given, learn_h0=learn)
        assert torch.equal(model.h0, given) and model.h0 is not given
        assert ("h0" in dict(model.named_parameters())) is learn
        assert "h0" in model.state_dict()
        model(x).sum().backward()
        assert (model.h0.grad is not None) is learn


def test_a_start_at_zero_gives_numbers_and_the_gradient_of_the_rotation():
    """H(0) = I. Printed as in the paper, the first step is 0/0, and every number after it is NaN."""
    U, x = henaff_initialisation(6, F64), torch.randn(5, 4, 3, dtype=F64)
    one, many = (network(f, h0=torch.zeros(6, dtype=F64)) for f in starting_at(U)[:2])
    share(one, many)
    gradients = []
    for model in (one, many):
        y = model(x)
        assert torch.isfinite(y).all()
        y.square().sum().backward()
        gradients.append(model.h0.grad)
    assert gradients[0].norm() > 1e-3
    torch.testing.assert_close(*gradients)
    assert plain_loop(one, x).isnan().all()


# modReLU


def test_modrelu():
    z = torch.tensor([-3.0, -0.5, 0.0, 0.5, 3.0], dtype=F64)
    torch.testing.assert_close(modrelu(z, torch.full((5,), -1.0, dtype=F64)), torch.tensor([-2.0, 0.0, 0.0, 0.0, 2.0], dtype=F64))
    torch.testing.assert_close(modrelu(z, torch.full((5,), 1.0, dtype=F64)), torch.tensor([-4.0, -1.5, 0.0, 1.5, 4.0], dtype=F64))
    assert torch.autograd.gradcheck(modrelu, (torch.randn(3, 5, dtype=F64, requires_grad=True), z.requires_grad_()))


@pytest.mark.parametrize(("bias", "slope"), [(-1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_modrelu_at_zero(bias, slope):
    """The identity at b = 0 has the derivative 1 everywhere; sign(z) relu(|z| + b) as it stands has 0 at z = 0."""
    z, b = torch.zeros(3, dtype=F64, requires_grad=True), torch.full((3,), bias, dtype=F64, requires_grad=True)
    y = modrelu(z, b)
    assert torch.equal(y, torch.zeros(3, dtype=F64))
    y.sum().backward()
    assert torch.equal(z.grad, torch.full((3,), slope, dtype=F64))
    assert torch.equal(b.grad, torch.zeros(3, dtype=F64))


def test_nan_passes_on():
    for bias in (-1.0, 0.0):
        assert modrelu(torch.tensor([math.nan, 1.0]), torch.full((2,), bias)).isnan().tolist() == [True, False]
    x = torch.zeros(2, 5, 3, dtype=F64)
    x[1, 2, 0] = math.nan
    assert network()(x).isnan().any(1).tolist() == [False, True]


# Rotations to start from


@pytest.mark.parametrize("draw", STARTS)
@pytest.mark.parametrize("d", [1, 2, 7, 170])
def test_starts_are_rotations_with_the_right_spectrum(draw, d):
    U = draw(d, F64)
    torch.testing.assert_close(U @ U.T, torch.eye(d, dtype=F64))
    assert float(torch.linalg.det(U)) == pytest.approx(1.0)
    values = torch.linalg.eigvals(U)
    torch.testing.assert_close(values.abs(), torch.ones(d, dtype=F64))
    angles = values.angle().abs()
    turning = angles.sort().values[d % 2 :]
    assert d % 2 == 0 or float(angles.min()) < 1e-7  # the unit that is left over stands still
    limit = math.pi / 2 if draw is cayley_initialisation else math.pi
    assert bool((turning <= limit + 1e-9).all())
    if d == 170:  # uniform: quarters of the interval hold about a quarter each
        counts = torch.histc(turning, 4, 0.0, limit) / d
        assert float((counts - 0.25).abs().max()) < 0.12


def test_the_cayley_start_is_a_cayley_transform():
    U = cayley_initialisation(6, F64)
    eye = torch.eye(6, dtype=F64)
    A = torch.linalg.solve(eye + U, eye - U)
    torch.testing.assert_close(A, -A.T)
    assert float(A.abs().max()) <= math.tan(math.pi / 4)
    for k in range(0, 6, 2):
        assert float(A[k, k + 1]) == pytest.approx(math.tan(math.acos(float(U[k, k])) / 2))
    assert torch.equal(A.abs() > 1e-12, torch.kron(torch.eye(3), 1 - torch.eye(2)) > 0)


def test_starts_are_drawn_in_the_default_dtype_and_differ():
    for draw in STARTS:
        first, second = draw(8), draw(8)
        assert first.dtype == torch.float32 and not torch.equal(first, second)


@pytest.mark.claim("REF-32")
@pytest.mark.parametrize("draw", STARTS)
@pytest.mark.parametrize("d", [6, 9])
def test_all_transitions_begin_as_one_map(draw, d):
    """One reflection with W = I - U, a product of them, a Cayley transform and an exponential: the same network at the start."""
    U, x = draw(d, F64), torch.randn(4, 20, 3, dtype=F64)
    models = [network(f, d) for f in (*starting_at(U), nn.Linear(d, d, bias=False))]
    share(*models)
    with torch.no_grad():
        models[-1].transition.weight.copy_(U)
        outputs = [model(x) for model in models]
    for other in outputs[:-1]:
        torch.testing.assert_close(other, outputs[-1], rtol=1e-8, atol=1e-10)
    gradients = [torch.autograd.grad(model(x).sum(), model.h0)[0] for model in models]
    for other in gradients[:-1]:
        torch.testing.assert_close(other, gradients[-1], rtol=1e-7, atol=1e-9)


@pytest.mark.claim("REF-32")
@pytest.mark.parametrize("k", [1, 2, 5])
def test_k_mirrors_see_k_plus_one_sums_of_the_inputs(k):
    """With b = 0 the last state depends on a sequence of numbers through a matrix of rank at most k + 1."""
    d, length = 8, 12
    fixed, free = HouseholderProduct(d, k), AuxiliaryReflection.from_orthogonal(henaff_initialisation(d, F64))
    ranks = []
    for transition in (fixed, free):
        model = ReflectionRNN(1, d, 2, transition).double()
        ends = torch.func.jacrev(lambda x, model=model: model.states(x)[-1])(torch.zeros(1, length, 1, dtype=F64))
        ranks.append(int(torch.linalg.matrix_rank(ends.reshape(d, length), rtol=1e-8)))
    assert ranks == [k + 1, d]


def test_one_mirror_does_not_see_the_order():
    """Two inputs two steps apart change places, and nothing else changes."""
    model = ReflectionRNN(3, 9, 2, HouseholderProduct(9, 1)).double()
    x = torch.randn(2, 10, 3, dtype=F64)
    y = x[:, [0, 1, 4, 3, 2, 5, 6, 7, 8, 9]]
    torch.testing.assert_close(model(x), model(y))
    other = ReflectionRNN(3, 9, 2).double()
    assert float((other(x) - other(y)).detach().abs().max()) > 1e-3


# What it takes


def test_a_transition_is_prepared_once_a_sequence():
    class Counting(AuxiliaryReflection):
        prepared_times = 0

        def prepared(self):
            self.prepared_times += 1
            return super().prepared()

    model = network(Counting)
    model(torch.randn(2, 9, 3, dtype=F64))
    assert model.transition.prepared_times == 1


def test_a_transition_is_a_module_or_what_makes_one():
    assert network(partial(HouseholderProduct, k=2)).transition.k == 2
    v = torch.randn(6, dtype=F64)

    class Mirror(nn.Module):  # without prepared()
        def forward(self, x):
            return householder(v, x)

    assert network(Mirror()).forward(torch.randn(2, 5, 3, dtype=F64)).shape == (2, 4)


def test_images_become_sequences():
    images = torch.arange(32.0).view(2, 1, 4, 4)
    assert torch.equal(PixelSequence()(images), images.view(2, 16, 1))
    assert torch.equal(PixelSequence(4)(images), images[:, 0])
    assert torch.equal(PixelSequence(1, 2)(images)[0], torch.tensor([[2.5], [4.5], [10.5], [12.5]]))
    model = ReflectionRNN(2, 5, 10, read=PixelSequence(2, 2))
    torch.testing.assert_close(model(images), ReflectionRNN.forward(model, images))
    assert model(images).shape == (2, 10)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ReflectionRNN(0), ValueError, "inputs = 0"),
        (lambda: ReflectionRNN(hidden=2.5), TypeError, r"hidden = 2\.5"),
        (lambda: ReflectionRNN(classes=-1), ValueError, "classes = -1"),
        (lambda: ReflectionRNN(transition=AuxiliaryReflection(5)), ValueError, "transition is for d = 5 and hidden = 170"),
        (lambda: ReflectionRNN(transition="cayley"), TypeError, "transition is a str"),
        (lambda: ReflectionRNN(transition=torch.eye), TypeError, "transition made a Tensor"),
        (lambda: ReflectionRNN(hidden=3, h0=torch.zeros(4)), ValueError, r"h0 has shape \(4,\)"),
        (lambda: ReflectionRNN(hidden=3, h0=torch.zeros(2, 3)), ValueError, r"h0 has shape \(2, 3\)"),
        (lambda: ReflectionRNN(hidden=3, h0=torch.tensor([0.0, 0.0, math.nan])), ValueError, "h0 has 1 NaN"),
        (lambda: cayley_initialisation(0), ValueError, "d = 0"),
        (lambda: henaff_initialisation(True), TypeError, "d = True"),
        (lambda: PixelSequence(0), ValueError, "inputs = 0"),
        (lambda: PixelSequence(1, 3)(torch.zeros(1, 1, 4, 4)), ValueError, "shrink = 3 does not divide"),
        (lambda: PixelSequence(3)(torch.zeros(1, 1, 4, 4)), ValueError, "inputs = 3 does not divide the 16 pixels"),
        (lambda: PixelSequence()(torch.zeros(1, 3, 4, 4)), ValueError, "grey images"),
        (lambda: PixelSequence()(torch.zeros(1, 1, 0, 4)), ValueError, r"\(1, 1, 0, 4\); pass grey images"),
        (lambda: PixelSequence()([[1.0]]), ValueError, "x has shape list; pass grey images"),
        (lambda: PixelSequence()(torch.zeros(1, 1, 4, 4, dtype=torch.uint8)), TypeError, r"torch\.uint8.*x\.float\(\) / 255"),
        (lambda: PixelSequence(1, 2)(torch.zeros(1, 1, 4, 4, dtype=torch.int64)), TypeError, r"torch\.int64.*pass x\.float\(\)"),
    ],
)
def test_what_makes_no_sense_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.zeros(2, 0, 3), ValueError, "length 0.*at least one step"),
        (torch.zeros(2, 5, 4), ValueError, r"\(2, 5, 4\); pass sequences of shape \(batch, length, 3\)"),
        (torch.zeros(5, 3), ValueError, r"\(5, 3\); pass sequences"),
        (torch.zeros(2, 5, 3, dtype=torch.int64), TypeError, "int64"),
        (torch.zeros(2, 5, 3, dtype=F64), TypeError, "float64"),
        ([[1.0]], ValueError, "list"),
    ],
)
def test_other_sequences_are_refused(x, error, message):
    with pytest.raises(error, match=message):
        ReflectionRNN(3, 6, 2)(x)


def test_an_empty_batch_has_no_logits():
    assert ReflectionRNN(3, 6, 2)(torch.zeros(0, 5, 3)).shape == (0, 2)
    assert ReflectionRNN(2, 5, 10, read=PixelSequence(2, 2))(torch.zeros(0, 1, 4, 4)).shape == (0, 10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"h0": torch.zeros(6, dtype=F64)}, r"h0 has dtype torch\.float64 and the weights have torch\.float32"),
        ({"h0": torch.zeros(6, dtype=F64), "learn_h0": False}, r"h0 has dtype torch\.float64"),
        ({"transition": AuxiliaryReflection(6, dtype=F64)}, r"transition\.weight has dtype torch\.float64 and the other"),
        ({"transition": Cayley(6).double()}, r"transition\.weight has dtype torch\.float64"),
    ],
    ids=["learned", "fixed", "reflection", "cayley"],
)
def test_a_part_of_another_dtype_is_named_and_to_is_the_remedy(options, message):
    model = ReflectionRNN(3, 6, 2, **options)
    with pytest.raises(TypeError, match=message + r".*move the network with \.to\(torch\.float32\)"):
        model(torch.zeros(2, 5, 3))
    assert model.to(torch.float32)(torch.zeros(2, 5, 3)).dtype == torch.float32
    assert model.double()(torch.zeros(2, 5, 3, dtype=F64)).dtype == F64


def test_a_network_in_a_short_format_or_under_autocast_runs():
    for transition in (AuxiliaryReflection, Cayley, MatrixExponential):
        model = ReflectionRNN(3, 6, 2, transition)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.isfinite(model(torch.randn(2, 5, 3))).all()
        assert model.to(torch.bfloat16)(torch.randn(2, 5, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16
