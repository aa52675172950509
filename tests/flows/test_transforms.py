"""Every transform of a flow, by one list: inverse both ways, determinant against autograd, gradients, shapes, saving."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch

from mon_lib.flows import Glow
from mon_lib.flows import transforms as T

F64 = torch.float64
SHAPE = (4, 2, 4)  # channels, H, W of a small image

TRANSFORMS = {
    "actnorm": lambda: T.ActNorm(4),
    "coupling": lambda: T.AffineCoupling(4, 5),
    "split prior": lambda: T.SplitPrior(4),
    "squeeze": T.Squeeze,
    "free mixing": lambda: T.FreeMixing(4),
    "householder mixing": lambda: T.HouseholderMixing(4),
    "two reflections": lambda: T.HouseholderMixing(4, k=2),
    "invertible mixing": lambda: T.InvertibleMixing(4),
    "invertible mixing, kappa 3/2": lambda: T.InvertibleMixing(4, kappa=1.5),
    "invertible mixing, kappa 1.99": lambda: T.InvertibleMixing(4, kappa=1.99),
    "composition": lambda: T.Compose(T.ActNorm(4), T.InvertibleMixing(4), T.AffineCoupling(4, 3)),
    "inverse": lambda: T.Inverse(T.Compose(T.FreeMixing(4), T.AffineCoupling(4, 3))),
    "nothing": T.Compose,
}
each = pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in TRANSFORMS.items()])


def build(make, seed: int = 0) -> T.Transform:
    """The transform in float64 with every parameter moved away from where it starts, and actnorm already initialised."""
    torch.manual_seed(seed)
    transform = make().double()
    with torch.no_grad():
        for parameter in trained(transform).values():
            parameter.add_(0.3 * torch.randn_like(parameter))
        for name, buffer in transform.named_buffers():
            if name.endswith("initialised"):
                buffer.fill_(True)
    return transform


def trained(transform: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """What training changes: not the fixed rotation."""
    return {name: parameter for name, parameter in transform.named_parameters() if parameter.requires_grad}


def images(batch: int = 3, seed: int = 1, shape=SHAPE) -> torch.Tensor:
    return torch.randn(batch, *shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


@each
def test_the_inverse_undoes_it_both_ways(make):
    transform, x = build(make), images()
    y = transform(x)
    assert (transform.inverse(y) - x).abs().max() < 1e-11
    target = images(seed=2, shape=tuple(y.shape[1:]))
    assert (transform(transform.inverse(target)) - target).abs().max() < 1e-11


@each
def test_the_determinant_is_that_of_autograd(make):
    transform, x = build(make), images()
    y, ladj = transform.forward_and_ladj(x)
    assert ladj.shape == (3,)
    for i in range(len(x)):
        J = torch.autograd.functional.jacobian(lambda s: transform(s[None]).flatten(), x[i]).reshape(y[i].numel(), -1)
        assert abs(float(torch.linalg.slogdet(J).logabsdet - ladj[i].detach())) < 1e-10
    back, ladj_back = transform.inverse_and_ladj(y)
    assert (back - x).abs().max() < 1e-11 and (ladj_back + ladj).abs().max() < 1e-10


@each
def test_gradients_reach_every_parameter_and_the_input(make):
    transform, x = build(make), images().requires_grad_()
    y, ladj = transform.forward_and_ladj(x)
    (y.pow(3).sum() + ladj.sin().sum()).backward()
    assert bool(torch.isfinite(x.grad).all()) and float(x.grad.abs().max()) > 0
    for name, parameter in trained(transform).items():
        assert parameter.grad is not None and bool(torch.isfinite(parameter.grad).all()), name
        assert float(parameter.grad.abs().max()) > 0, name


@each
def test_derivatives_are_right(make):
    transform = build(make)
    names = list(trained(transform))
    values = tuple(p.detach().clone().requires_grad_() for p in trained(transform).values())

    def run(x, *parameters):
        y, ladj = torch.func.functional_call(
            _Both(transform), {f"transform.{n}": p for n, p in zip(names, parameters, strict=True)}, (x,)
        )
        return y, ladj

    assert torch.autograd.gradcheck(run, (images(2).requires_grad_(), *values))


class _Both(torch.nn.Module):
    def __init__(self, transform):
        super().__init__()
        self.transform = transform

    def forward(self, x):
        return self.transform.forward_and_ladj(x)


@each
def test_the_inverse_is_differentiable(make):
    transform = build(make)
    y = transform(images()).detach().requires_grad_()
    x = transform.inverse(y)
    v = torch.randn_like(x)
    (gradient,) = torch.autograd.grad(x, y, v)
    for i in range(len(y)):
        J = torch.autograd.functional.jacobian(lambda s: transform(s[None]).flatten(), x[i].detach()).reshape(y[i].numel(), -1)
        assert (J.T @ gradient[i].flatten() - v[i].flatten()).abs().max() < 1e-9


@each
def test_a_sample_alone_and_in_a_batch_is_the_same(make):
    transform, x = build(make), images(4)
    y, ladj = transform.forward_and_ladj(x)
    for i in range(len(x)):
        alone, ladj_alone = transform.forward_and_ladj(x[i : i + 1])
        assert (alone[0] - y[i]).abs().max() < 1e-12 and abs(float((ladj_alone - ladj[i]).detach())) < 1e-12


@each
def test_saving_loading_copying_and_an_empty_batch(make):
    transform, x = build(make), images()
    y = transform(x)
    torch.manual_seed(77)
    other = make().double()
    other.load_state_dict(transform.state_dict())
    for twin in (other, copy.deepcopy(transform)):
        assert (twin(x) - y).abs().max() < 1e-13
        assert (twin.eval()(x) - y).abs().max() < 1e-13
    none, ladj = transform.forward_and_ladj(x[:0])
    assert none.shape == (0, *y.shape[1:]) and ladj.shape == (0,) and transform.inverse(none).shape == x[:0].shape


@each
def test_float32_and_strided_input(make):
    transform, x = build(make), images()
    y = transform(x)
    strided = x.transpose(2, 3).contiguous().transpose(2, 3)
    assert not strided.is_contiguous() and (transform(strided) - y).abs().max() < 1e-12
    single = copy.deepcopy(transform).float()
    image = single(x.float())
    assert image.dtype == torch.float32 and (image - y).abs().max() < 1e-4
    assert (single.inverse(image) - x.float()).abs().max() < 1e-3


@each
def test_what_is_no_batch_of_samples_is_refused(make):
    transform = build(make)
    with pytest.raises(TypeError, match="floating-point"):
        transform(torch.zeros(2, *SHAPE, dtype=torch.long))
    with pytest.raises(ValueError, match="shape"):
        transform(torch.zeros(3, dtype=F64))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.AffineCoupling(3), "channels = 3 cannot be halved.*squeez"),
        (lambda: T.SplitPrior(5), "channels = 5 cannot be halved"),
        (lambda: T.ActNorm(0), "channels = 0"),
        (lambda: T.FreeMixing(0), "channels = 0"),
        (lambda: T.InvertibleMixing(4, kappa=2.0), "kappa = 2"),
        (lambda: T.Dequantisation(1), "levels = 1"),
        (lambda: T.AffineCoupling(4, 0), "hidden = 0"),
        (lambda: T.Squeeze()(torch.zeros(1, 3, 5, 4)), "5 x 4.*even"),
        (lambda: T.Squeeze().inverse(torch.zeros(1, 3, 4, 4)), "3 channels"),
        (lambda: T.FreeMixing(4)(torch.zeros(1, 5, 4, 4)), r"takes images \(batch, 4, H, W\)"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_squeezing_takes_pixels_as_pytorch_does():
    x = images(2)
    assert torch.equal(T.Squeeze()(x), torch.nn.functional.pixel_unshuffle(x, 2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.nn.ReLU(), "ReLU is no mon_lib.flows.transforms.Transform"),
        (T.Squeeze, r"Squeeze is a class; pass an object of it, Squeeze\(...\)"),
        ([T.ActNorm(2)], r"a list is no transform; .*Compose\(\*transforms\)"),
    ],
)
@pytest.mark.parametrize("make", [T.Compose, T.Inverse])
def test_only_transforms_are_composed_and_inverted(make, given, message):
    with pytest.raises(TypeError, match=message):
        make(given)


def test_a_slice_of_a_composition_is_one():
    whole = T.Compose(T.ActNorm(4), T.Squeeze(), T.ActNorm(16)).double().eval()
    x = images()
    assert torch.equal(whole[1:](whole[:1](x)), whole(x)) and len(whole[:0]) == 0


def test_images_that_are_no_tensors_are_refused():
    with pytest.raises(TypeError, match=r"x is a ndarray; pass a torch\.Tensor"):
        T.ActNorm(4)(images().numpy())


# --- actnorm


def test_actnorm_is_set_by_the_first_batch_once_and_remembers():
    norm, x = T.ActNorm(4).double(), 5.0 + 3.0 * images(20)
    assert torch.equal(norm.eval()(x), x)  # nothing has set it, and evaluation does not
    y = norm.train()(x)
    assert y.mean((0, 2, 3)).abs().max() < 1e-12 and (y.var((0, 2, 3), correction=0) - 1).abs().max() < 1e-12
    again = norm(2.0 * x)  # a second batch changes nothing
    assert (again.mean((0, 2, 3))).abs().max() > 1.0
    loaded = T.ActNorm(4).double()
    loaded.load_state_dict(norm.state_dict())
    assert torch.equal(loaded.train()(2.0 * x), again)
    fresh = T.ActNorm(4).double()
    used = copy.deepcopy(norm)
    used.load_state_dict(fresh.state_dict())  # back to the beginning: the next batch sets it again
    assert used(2.0 * x).mean((0, 2, 3)).abs().max() < 1e-12


@pytest.mark.parametrize("value", [0.0, 7.0, float("nan"), float("inf")])
def test_actnorm_refuses_a_first_batch_that_it_cannot_scale(value):
    x = images()
    x[:, 2] = value
    norm = T.ActNorm(4).double()
    with pytest.raises(ValueError, match=r"channels \[2\]"):
        norm(x)
    assert not bool(norm.initialised) and torch.equal(norm.offset, torch.zeros(4, dtype=F64))


def test_the_way_back_through_a_fresh_actnorm_sets_nothing():
    norm, y = T.ActNorm(4).double(), 5.0 + 3.0 * images(20)
    x, ladj = norm.inverse_and_ladj(y)
    assert torch.equal(x, y) and not ladj.any() and not bool(norm.initialised)
    turned = T.Inverse(T.Compose(norm, T.AffineCoupling(4, 8).double()))
    first, second = turned.forward_and_ladj(y), turned.forward_and_ladj(y)
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])


@pytest.mark.parametrize("chain", [True, False], ids=["composition", "Glow"])
def test_a_first_batch_that_fails_half_way_sets_nothing(chain):
    torch.manual_seed(0)
    model = T.Compose(T.ActNorm(3), T.Squeeze(), T.ActNorm(12)).double() if chain else Glow((3, 4, 4), 2, 2, 8).double().flow
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="begin with a larger batch"):
        model(torch.rand(1, 3, *(2, 2) if chain else (4, 4), dtype=F64))
    after = model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    model(torch.rand(64, 3, 4, 4, dtype=F64))
    assert all(bool(value) for key, value in model.state_dict().items() if key.endswith("initialised"))


def test_actnorm_looks_at_the_flag_it_is_called_with():
    norm, other, x = T.ActNorm(4).double(), T.ActNorm(4).double(), 5.0 + 3.0 * images(20)
    norm(x)
    y = torch.func.functional_call(other, norm.state_dict(), (x,))
    assert torch.equal(y, norm(x)) and not bool(other.initialised)
    assert torch.equal(other(2.0 * x).mean((0, 2, 3)).abs() < 1e-12, torch.ones(4, dtype=torch.bool))  # its own first batch
    norm.initialised.zero_()
    assert norm(2.0 * x).mean((0, 2, 3)).abs().max() < 1e-12


def test_averages_of_weights_take_buffers_too():
    norm = T.ActNorm(4).double()
    norm(images(20))
    average = torch.optim.swa_utils.AveragedModel(norm, use_buffers=True)
    for _ in range(3):
        average.update_parameters(norm)
    assert bool(average.module.initialised) and torch.allclose(average.module.offset, norm.offset)


# --- mixing


def test_a_random_orthogonal_matrix_has_either_determinant():
    torch.manual_seed(0)
    signs = set()
    for _ in range(30):
        Q = T.random_orthogonal(6).double()
        assert (Q.T @ Q - torch.eye(6, dtype=F64)).abs().max() < 1e-6
        signs.add(round(float(torch.linalg.det(Q))))
    assert signs == {-1, 1}
    plain = {round(float(torch.linalg.det(torch.linalg.qr(torch.randn(6, 6, dtype=F64))[0]))) for _ in range(30)}
    assert plain == {-1}  # and LAPACK's has one


def test_auxiliary_mixing_starts_orthogonal_and_refuses_an_inverse_that_it_does_not_have():
    from mon_lib.reflections import Newton

    torch.manual_seed(3)
    mixing, x = T.AuxiliaryMixing(4).double(), images()
    y, ladj = mixing.forward_and_ladj(x)
    assert (y.norm(dim=1) - x.norm(dim=1)).abs().max() < 1e-12 and ladj.abs().max() < 1e-4  # W came in float32
    with pytest.raises(NotImplementedError, match=r"not one to one.*InvertibleMixing.*preimage"):
        mixing.inverse(y)
    build_again = build(partial(T.AuxiliaryMixing, 4, preimage=Newton()))
    y, ladj = build_again.forward_and_ladj(x)
    found = build_again.inverse(y)  # a preimage, if not always x
    assert (build_again(found) - y).abs().max() < 1e-9
    J = torch.autograd.functional.jacobian(lambda s: build_again(s[None]).flatten(), x[0]).reshape(32, 32)
    assert abs(float(torch.linalg.slogdet(J).logabsdet - ladj[0].detach())) < 1e-10


MIXINGS = [
    partial(T.FreeMixing, 6),
    partial(T.HouseholderMixing, 6),
    *(partial(T.InvertibleMixing, 6, k) for k in (1.5, 1.9, 1.99)),
]


@pytest.mark.parametrize("make", MIXINGS)
def test_mixings_round_no_more_than_their_results_in_evaluation_mode_and_on_the_way_back(make):
    """Those of a float32 mixing are those of its copy in float64, to one rounding."""
    single = build(make).float()
    with torch.no_grad():
        for parameter in trained(single).values():
            parameter.mul_(3.0)  # reflections that use their bound
    wide, x = copy.deepcopy(single).double(), images(200, shape=(6, 4, 4)).float()
    x[0] = 0.0
    x[1] *= 1e-25
    x[2] *= 1e18
    eps = torch.finfo(torch.float32).eps
    for method, training in (("forward", False), ("inverse", False), ("inverse", True)):
        found = getattr(single.train(training), method)(x)
        exact = getattr(wide.train(training), method)(x.double())
        assert found.dtype == torch.float32 and not found[0].any()
        assert ((found - exact).abs() <= 0.51 * eps * exact.abs() + 1e-8 * exact.norm(dim=1, keepdim=True)).all()
    assert single.inverse(x[:0]).shape == (0, 6, 4, 4)


@pytest.mark.parametrize("make", MIXINGS)
def test_derivatives_of_the_way_back_in_float32_are_those_of_float64(make):
    single = build(make).float()
    wide, y = copy.deepcopy(single).double(), images(20, shape=(6, 4, 4)).float()
    found, exact = (
        torch.autograd.grad(mixing.inverse(target).pow(3).sum(), [target, *trained(mixing).values()])
        for mixing, target in ((single, y.requires_grad_()), (wide, y.detach().double().requires_grad_()))
    )
    for a, b in zip(found, exact, strict=True):
        assert a.dtype == torch.float32 and (a - b).norm() <= 1e-5 * b.norm()


def test_a_mixing_takes_images_in_the_dtype_of_its_parameters():
    for make in MIXINGS:
        for method in ("forward", "inverse"):
            with pytest.raises(TypeError, match=r"torch\.float64, the parameters are torch\.float32"):
                getattr(make().eval(), method)(images(shape=(6, 4, 4)))
    with pytest.raises(ValueError, match="NaN or infinite"):
        T.InvertibleMixing(6).inverse(torch.full((1, 6, 2, 2), torch.inf))


@pytest.mark.parametrize("make", [lambda: T.ActNorm(64), lambda: T.AffineCoupling(128, 4)], ids=["actnorm", "coupling"])
def test_a_scale_is_undone_without_a_rounding_of_its_own(make):
    """Otherwise it would stretch every pixel by the same rounding error: powers of two come back as they were."""
    torch.manual_seed(0)
    scale = make().eval()
    with torch.no_grad():
        if isinstance(scale, T.ActNorm):
            scale.log_scale.normal_()
        else:
            scale.network[-1].bias[:64].normal_()  # the logits; the shifts stay zero
    x = torch.full((2, scale.channels, 2, 2), 0.25)
    assert torch.equal(scale.inverse(scale(x)), x)


def test_the_rotation_stays_fixed_when_a_model_is_frozen_and_freed():
    mixing = T.InvertibleMixing(6)
    trained = {name for name, _ in mixing.named_parameters()}
    mixing.requires_grad_(False).requires_grad_(True)
    assert trained == {"reflection.weight"} == {name for name, p in mixing.named_parameters() if p.requires_grad}
    assert "rotation.vectors" in mixing.state_dict()


@pytest.mark.parametrize(
    ("make", "error"),
    [(lambda: T.HouseholderMixing(4, k=0), ValueError), (lambda: T.AuxiliaryMixing(4, preimage="newton"), TypeError)],
)
def test_mixings_refuse_what_they_cannot_use(make, error):
    with pytest.raises(error, match=r"k = 0|preimage = 'newton'"):
        make()


# --- dequantisation


@pytest.mark.parametrize(("dtype", "levels"), [(torch.bfloat16, 256), (torch.bfloat16, 64), (torch.float16, 4096)])
def test_a_dtype_that_is_too_coarse_for_the_levels_is_refused(dtype, levels):
    noise = T.Dequantisation(levels)
    for take in (noise, noise.centre):
        with pytest.raises(TypeError, match=f"{dtype}, which does not keep {levels} levels apart"):
            take(torch.zeros(1, 1, 2, 2, dtype=dtype))


@pytest.mark.parametrize(
    ("dtype", "levels"), [(torch.bfloat16, 32), (torch.float16, 256), (torch.float32, 2**16), (torch.float64, 2**16)]
)
def test_every_level_survives_in_the_coarsest_dtype_that_is_taken(dtype, levels):
    noise = T.Dequantisation(levels)
    k = torch.arange(levels, dtype=F64).reshape(1, 1, 1, -1)
    x = (k / (levels - 1)).to(dtype)
    for _ in range(20):
        y = noise(x)
        assert y.min() >= -0.5 and y.max() < 0.5
        assert torch.equal((noise.inverse(y).double() * (levels - 1)).round(), k)
    assert torch.equal((noise.inverse(noise.centre(x)).double() * (levels - 1)).round(), k)


def test_the_state_dict_says_how_many_levels_there_are():
    coarse, fine = T.Dequantisation(16), T.Dequantisation(256)
    with pytest.raises(ValueError, match=r"that of 16 levels, the module has 256.*quantisation"):
        fine.load_state_dict(coarse.state_dict())
    fine.load_state_dict(T.Dequantisation(256).state_dict())
    fine.load_state_dict({})  # from before the levels were in it
    assert repr(coarse) == "Dequantisation(levels=16)"


@pytest.mark.parametrize("levels", [2, 3, 7, 32, 256, 1000, 65536])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_every_level_survives_dequantisation(levels, dtype):
    """Also with the smallest and the largest u, which rounding would take to the next level."""
    step = T.Dequantisation(levels)
    k = torch.arange(levels, dtype=dtype)
    x = (k / (levels - 1)).reshape(1, 1, 1, -1)
    for draw in (torch.zeros_like, lambda like: torch.full_like(like, 1.0 - torch.finfo(dtype).eps / 2), torch.rand_like):
        original, torch.rand_like = torch.rand_like, draw
        try:
            y, ladj = step.forward_and_ladj(x)
        finally:
            torch.rand_like = original
        assert torch.equal(step.inverse(y) * (levels - 1), x * (levels - 1))
        assert bool(((y >= -0.5) & (y < 0.5)).all())
    assert torch.equal(step.inverse(step.centre(x)), x)
    assert float(ladj) == pytest.approx(-levels * torch.tensor(levels, dtype=F64).log().item())


def test_dequantisation_fills_the_step_of_a_level_evenly():
    torch.manual_seed(0)
    step = T.Dequantisation(4)
    y = step(torch.full((1, 1, 100, 100), 1 / 3))
    u = (y + 0.5) * 4 - 1
    assert float(u.min()) >= 0 and float(u.max()) < 1
    # 10,000 draws: five standard deviations of the mean and of the second moment
    assert abs(float(u.mean()) - 1 / 2) < 5 * (1 / 12) ** 0.5 / 100
    assert abs(float(u.square().mean()) - 1 / 3) < 5 * (4 / 45) ** 0.5 / 100


@pytest.mark.parametrize("value", [-0.1, 1.1, 0.5 / 255, float("nan")])
def test_values_that_are_no_pixels_are_refused(value):
    with pytest.raises(ValueError, match="no pixels k/255"):
        T.Dequantisation()(torch.full((1, 1, 2, 2), value))
