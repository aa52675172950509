"""Glow: a bijection whose density is one, that samples, reconstructs and learns."""

from __future__ import annotations

import copy
import math
from functools import partial

import pytest
import torch

from mon_lib import data
from mon_lib.flows import Glow
from mon_lib.flows.transforms import AuxiliaryMixing, FreeMixing, HouseholderMixing, InvertibleMixing
from mon_lib.reflections import Newton

F64 = torch.float64
MIXINGS = {
    "free": FreeMixing,
    "householder": HouseholderMixing,
    "invertible": InvertibleMixing,
    "kappa 3/2": partial(InvertibleMixing, kappa=1.5),
}
each = pytest.mark.parametrize("mixing", [pytest.param(mixing, id=name) for name, mixing in MIXINGS.items()])


def moved(model: Glow, by: float = 0.1) -> Glow:
    """Every parameter away from where it starts, and actnorm initialised."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("initialised"):
                buffer.fill_(True)
    return model


def pixels(batch: int, shape=(3, 8, 8), seed: int = 0) -> torch.Tensor:
    k = torch.randint(256, (batch, *shape), generator=torch.Generator().manual_seed(seed))
    return k.float() / 255


@each
def test_latents_are_a_bijection_and_the_determinant_is_right(mixing):
    torch.manual_seed(0)
    model = moved(Glow((1, 4, 4), levels=2, steps=2, hidden=4, mixing=mixing).double())
    x = torch.rand(2, 1, 4, 4, dtype=F64) - 0.5
    z, ladj = model.flow.forward_and_ladj(x)
    assert z.shape == (2, 16) and (model.flow.inverse(z) - x).abs().max() < 1e-10
    for i in range(2):
        J = torch.autograd.functional.jacobian(lambda s: model.flow(s[None]).flatten(), x[i]).reshape(16, 16)
        assert abs(float(torch.linalg.slogdet(J).logabsdet - ladj[i].detach())) < 1e-9
        expected = torch.distributions.Normal(0.0, 1.0).log_prob(z[i]).sum() + ladj[i]
        assert abs(float((model.log_prob(x)[i] - expected).detach())) < 1e-10


@each
def test_the_density_of_two_pixels_integrates_to_one(mixing):
    """On a grid wide enough that what is outside is below the tolerance; the rule of the trapezium converges fast here."""
    torch.manual_seed(1)

    class Pair(torch.nn.Module):
        """Two numbers as one image of two channels and one pixel."""

        def __init__(self):
            super().__init__()
            self.mixing = mixing(2)

        def log_prob(self, y):
            z, ladj = self.mixing.forward_and_ladj(y[:, :, None, None])
            return ladj - 0.5 * z.flatten(1).square().sum(1) - math.log(2 * math.pi)

    pair = Pair().double()
    with torch.no_grad():
        for parameter in pair.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        # in polar coordinates, where a map that keeps rays smooth is smooth; free matrices stretch up to a few times
        r = torch.linspace(0.0, 40.0, 2001, dtype=F64)
        angle = torch.arange(720, dtype=F64) * (2 * math.pi / 720)
        points = torch.stack([r[:, None] * angle.cos(), r[:, None] * angle.sin()], -1).reshape(-1, 2)
        density = pair.log_prob(points + 1e-300).exp().reshape(len(r), -1)
        inside = torch.trapezoid(density.mean(1) * 2 * math.pi * r, r)
    assert abs(float(inside) - 1.0) < 1e-4  # the step in r is 1/50 of a standard deviation


@each
def test_reconstruction_is_bit_exact_and_sampling_is_reproducible(mixing):
    torch.manual_seed(2)
    model = moved(Glow((3, 8, 8), levels=2, steps=2, hidden=8, mixing=mixing), 0.03).eval()
    x = pixels(4)
    assert torch.equal((model.reconstruct(x) * 255).round(), (x * 255).round())
    samples = model.sample(5, generator=torch.Generator().manual_seed(0))
    assert samples.shape == (5, 3, 8, 8) and bool(((samples >= 0) & (samples <= 1)).all())
    assert torch.equal(samples, model.sample(5, generator=torch.Generator().manual_seed(0)))
    cold = model.sample(5, temperature=0.0)
    assert bool((cold == cold[:1]).all())


def test_an_untrained_flow_costs_what_its_gaussian_costs():
    """With every transform orthogonal but actnorm at its start, the code length is that of one Gaussian for all pixels."""
    torch.manual_seed(3)
    model = Glow((3, 4, 4), levels=1, steps=1, hidden=2, mixing=HouseholderMixing).eval()
    coupling = model.flow.levels[0][3]
    with torch.no_grad():
        coupling.network[-1].bias[:6] = 100.0  # sigmoid(102) is 1
    x = pixels(2, (3, 4, 4))
    bits = model.bits_per_dim(x)
    y = model.dequantisation.centre(x)
    expected = (0.5 * y.square().flatten(1).mean(1) + 0.5 * math.log(2 * math.pi)) / math.log(2) + 8
    # the noise of 48 entries moves y by at most 1/512, and so y^2/2 by at most 1/1000
    assert (bits - expected).abs().max() < 2e-3


def test_training_learns_something_about_photographs_and_actnorm_is_set_by_it():
    torch.manual_seed(4)
    train = data.load("photo-patches").pixels()
    test = data.load("photo-patches", train=False).pixels()[:64]
    model = Glow((3, 16, 16), levels=2, steps=2, hidden=16)
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    first = None
    for _ in range(25):
        bits = model(train[torch.randint(len(train), (32,))]).mean()
        optimiser.zero_grad()
        bits.backward()
        optimiser.step()
        first = bits.item() if first is None else first
    model.eval()
    with torch.no_grad():
        after = float(model.bits_per_dim(test).mean())
    assert all(bool(buffer) for name, buffer in model.named_buffers() if name.endswith("initialised"))
    assert after < first - 0.5  # and eight bits are what a uniform guess costs
    assert after < 8
    assert torch.equal((model.reconstruct(test) * 255).round(), (test * 255).round())
    with torch.no_grad():
        y = model.dequantisation.centre(test)
        assert 256 * (model.flow.inverse(model.flow(y)) - y).abs().max() < 1e-3  # levels


def test_saving_copying_and_a_sample_alone():
    torch.manual_seed(5)
    model = moved(Glow((3, 8, 8), levels=2, steps=1, hidden=4).double())
    y = torch.rand(3, 3, 8, 8, dtype=F64) - 0.5
    expected = model.log_prob(y)
    other = Glow((3, 8, 8), levels=2, steps=1, hidden=4).double()
    other.load_state_dict(model.state_dict())
    for twin in (other, copy.deepcopy(model)):
        assert (twin.log_prob(y) - expected).abs().max() < 1e-9
    assert (torch.cat([model.log_prob(one) for one in y.split(1)]) - expected).abs().max() < 1e-9


def test_a_flow_with_auxiliary_mixing_does_not_sample_unless_told_how():
    torch.manual_seed(6)
    model = moved(Glow((3, 4, 4), levels=1, steps=1, hidden=4, mixing=AuxiliaryMixing), 0.02)
    with pytest.raises(NotImplementedError, match="not one to one"):
        model.sample(2)
    with pytest.raises(NotImplementedError, match="not one to one"):
        model.reconstruct(pixels(2, (3, 4, 4)))
    told = Glow((3, 4, 4), levels=1, steps=1, hidden=4, mixing=partial(AuxiliaryMixing, preimage=Newton()))
    assert told.sample(2).shape == (2, 3, 4, 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Glow((3, 12, 16), levels=3), r"multiples of 8, for instance \(3, 8, 16\)"),
        (lambda: Glow((3, 16)), r"must be \(channels, height, width\)"),
        (lambda: Glow((3, 16, 16), levels=0), "levels = 0"),
        (lambda: Glow((3, 16, 16), steps=0), "steps = 0"),
        (lambda: Glow((3, 8, 8), 1, 1, 2)(torch.zeros(2, 3, 8, 16)), r"images \(batch, 3, 8, 8\)"),
        (lambda: Glow((3, 8, 8), 1, 1, 2).sample(0), "n = 0"),
        (lambda: Glow((3, 8, 8), 1, 1, 2).sample(1, temperature=-1.0), "temperature = -1"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("mixing", [FreeMixing, HouseholderMixing, InvertibleMixing])
def test_what_leaves_the_range_of_the_dtype_is_no_sample(mixing):
    torch.manual_seed(0)
    model = moved(Glow((3, 8, 8), levels=2, steps=2, hidden=8, mixing=mixing))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("log_scale") and "levels.0.transforms.1." in name:
                parameter.fill_(-80.0)
    with pytest.raises(ValueError, match=r"temperature = 1e\+08 takes .*lower the temperature"):
        model.sample(4, 1e8)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((2, None), TypeError, "temperature = None"),
        ((2, -1.0), ValueError, "temperature = -1.0"),
        ((2, 1.0, 0), TypeError, "generator = 0"),
    ],
)
def test_wrong_requests_for_samples_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Glow((1, 4, 4), levels=1, steps=1, hidden=4).sample(*arguments)


@pytest.mark.parametrize("mixing", [FreeMixing(12), "free", None])
def test_a_mixing_is_made_for_every_step(mixing):
    with pytest.raises(TypeError, match="makes no transform of a number of channels"):
        Glow((3, 4, 4), levels=1, steps=1, hidden=4, mixing=mixing)


@each
def test_images_come_back_under_autocast_too(mixing):
    torch.manual_seed(0)
    model = Glow((3, 8, 8), levels=2, steps=3, hidden=16, mixing=mixing)
    model(pixels(64))
    model, x = moved(model, 0.05).eval(), pixels(16, seed=1)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert torch.equal((model.reconstruct(x) * 255).round(), (x * 255).round())
        y = model.dequantisation.centre(x)
        low = model.log_prob(y)
    assert torch.allclose(low, model.log_prob(y), rtol=1e-5)
