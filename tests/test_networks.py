"""The classifiers: sizes as in Table D1, gradients, batches, errors."""

import copy
import dataclasses
import pickle

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from mon_lib import data, prox, training
from mon_lib.networks import (
    CNN,
    MLP,
    TABLE_D1,
    Architecture,
    ConvolutionalMON,
    FullyConnectedMON,
    MultiTierMON,
    count_parameters,
)
from mon_lib.splitting import DouglasRachford, PeacemanRachford

SHARP = PeacemanRachford(tol=1e-12)


def small(seed=0, **options):
    torch.manual_seed(seed)
    options = {"in_features": 6, "units": 5, "classes": 3, "solver": SHARP} | options
    return FullyConnectedMON(**options).double()


def convolutional(seed=0, **options):
    torch.manual_seed(seed)
    options = {"in_channels": 2, "image_size": (8, 4), "channels": 3, "classes": 3, "solver": SHARP} | options
    return ConvolutionalMON(**options).double()


def tiers(seed=0, **options):
    torch.manual_seed(seed)
    options = {"in_channels": 2, "image_size": (8, 4), "channels": (3, 2, 2), "classes": 3, "solver": SHARP} | options
    return MultiTierMON(**options).double()


def pictures(batch=4, size=(8, 4), seed=5):
    return torch.randn(batch, 2, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


both = pytest.mark.parametrize("make", [convolutional, tiers])


def test_the_fully_connected_network_has_the_size_of_table_d1():
    assert count_parameters(FullyConnectedMON()) == 84_313
    # A, B; U, b; W_o, b_o. The scalars g and h of appendix D.2 do not fit into the printed count.
    assert 2 * 87 * 87 + 784 * 87 + 87 + 87 * 10 + 10 == 84_313
    assert count_parameters(FullyConnectedMON(normalised=True)) == 84_315


def test_the_baseline_is_the_closest_in_size_with_one_hidden_layer():
    model = MLP.matching(84_313)
    assert [layer.out_features for layer in model if isinstance(layer, nn.Linear)] == [106, 10]
    gaps = {width: abs(count_parameters(MLP(widths=(width,))) - 84_313) for width in range(100, 113)}
    assert min(gaps, key=gaps.get) == 106
    assert gaps[106] == 33
    assert count_parameters(MLP()) == count_parameters(model)


def test_frozen_parameters_are_not_counted():
    model = MLP(4, (3,), 2)
    model[1].weight.requires_grad_(False)
    assert count_parameters(model) == 3 + 8


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("activation", [None, prox.Tanh(), prox.LeakyReLU(0.1)])
def test_the_output_is_the_readout_of_the_equilibrium(normalised, activation):
    model = small(normalised=normalised, activation=activation, m=0.5)
    x = torch.randn(4, 1, 2, 3, dtype=torch.float64)
    layer = model.equilibrium
    W, bias = layer.operator.to_dense(), layer.injection(x.flatten(1))
    z = layer(x.flatten(1))
    sigma = prox.ReLU() if activation is None else activation
    torch.testing.assert_close(z, sigma(z @ W.T + bias), rtol=0, atol=1e-10)
    torch.testing.assert_close(model(x), model.readout(z))
    assert torch.linalg.eigvalsh(torch.eye(5) - (W + W.T) / 2)[0] >= 0.5 - 1e-12


@pytest.mark.parametrize(
    "make",
    [
        small,
        lambda: small(normalised=True),
        convolutional,
        lambda: convolutional(crop=False, pool=3, kernel_size=1),
        tiers,
        lambda: tiers(activation=prox.LeakyReLU(0.2)),
    ],
    ids=["dense", "normalised", "convolutional", "pointwise", "tiers", "leaky tiers"],
)
def test_every_parameter_has_the_gradient_of_finite_differences(make):
    model = make()
    x = torch.randn(7, 6, dtype=torch.float64) if isinstance(model, FullyConnectedMON) else pictures(7)
    y = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    cross_entropy(model(x), y).backward()
    step = 1e-6
    for name, parameter in model.named_parameters():
        direction = torch.randn_like(parameter)
        with torch.no_grad():
            values = []
            for sign in (1.0, -1.0):
                parameter.add_(sign * step * direction)
                values.append(cross_entropy(model(x), y))
                parameter.sub_(sign * step * direction)
        expected = (values[0] - values[1]) / (2 * step)
        found = (parameter.grad * direction).sum()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8, msg=f"gradient of {name}")


@pytest.mark.parametrize("make", [small, convolutional, tiers])
def test_a_sample_alone_and_in_a_batch_gives_the_same_logits(make):
    model = make()
    x = torch.randn(9, 6, dtype=torch.float64) if make is small else pictures(9)
    together = model(x)
    alone = torch.cat([model(x[i : i + 1]) for i in range(9)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize("make", [small, convolutional, tiers])
def test_copies_and_state_dict_give_the_same_network(make):
    model = make()
    x = torch.randn(3, 6, dtype=torch.float64) if make is small else pictures(3)
    cross_entropy(model(x), torch.tensor([0, 1, 2])).backward()
    expected = model(x)
    other = make(seed=1)
    assert not torch.allclose(other(x), expected, rtol=0, atol=1e-3)
    other.load_state_dict(model.state_dict())
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), other):
        torch.testing.assert_close(copied(x), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FullyConnectedMON(units=0), "units = 0"),
        (lambda: FullyConnectedMON(classes=2.0), r"classes = 2\.0"),
        (lambda: FullyConnectedMON(m=0.0), r"m = 0\.0"),
        (lambda: MLP(widths=(10, 0)), r"widths\[1\] = 0"),
        (lambda: MLP.matching(50), r"parameters = 50 must be an integer, at least 805"),
    ],
)
def test_senseless_sizes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_activations_that_are_not_proximal_are_refused():
    with pytest.raises((TypeError, ValueError)):
        FullyConnectedMON(activation=nn.GELU())


def test_images_of_another_size_are_refused():
    with pytest.raises(RuntimeError, match="shape"):
        FullyConnectedMON()(torch.zeros(2, 3, 32, 32))
    with pytest.raises(RuntimeError, match="shape"):
        MLP()(torch.zeros(2, 3, 32, 32))


def test_the_mlp_is_linear_maps_with_relu_between():
    torch.manual_seed(0)
    model = MLP(4, (3, 5), 2)
    x = torch.randn(6, 1, 2, 2)
    first, second, last = (layer for layer in model if isinstance(layer, nn.Linear))
    expected = last(second(first(x.flatten(1)).relu()).relu())
    torch.testing.assert_close(model(x), expected)


# ----------------------------------------------------------------------------------------------- convolutions


@pytest.mark.claim("MON-D1")
@pytest.mark.parametrize("name", TABLE_D1)
def test_the_networks_of_table_d1_have_its_sizes(name):
    row = TABLE_D1[name]
    assert row.name == name
    assert count_parameters(row.build()) == row.parameters == row.printed
    assert count_parameters(row.build(classes=7)) < row.parameters


@pytest.mark.claim("MON-D1")
def test_table_d1_as_printed():
    printed = {
        "mnist-fully-connected": (84_313, "87"),
        "mnist-single": (84_460, "54"),
        "mnist-multi-tier": (81_394, "(16, 32, 32)"),
        "svhn-single": (172_218, "81"),
        "svhn-multi-tier": (170_194, "(16, 32, 60)"),
        "cifar10-single": (172_218, "81"),
        "cifar10-multi-tier": (170_194, "(16, 32, 60)"),
        "cifar10-single-large": (853_612, "200"),
        "cifar10-multi-tier-large": (1_014_546, "(64, 128, 128)"),
    }
    assert {name: (row.printed, row.printed_channels) for name, row in TABLE_D1.items()} == printed


@pytest.mark.claim("MON-D1")
def test_the_printed_54_channels_are_not_the_printed_count():
    row = TABLE_D1["mnist-single"]
    assert count_parameters(row.build(channels=54)) == 79_500
    assert count_parameters(row.build(channels=56)) == count_parameters(ConvolutionalMON()) == 84_460
    # A, B; g, h; U, b; W_o on 7 x 7 pooled pixels, b_o.
    for n, total in ((54, 79_500), (56, 84_460)):
        assert 2 * 9 * n * n + 2 + 9 * n + n + 10 * n * 49 + 10 == total
    near = {n: count_parameters(row.build(channels=n)) for n in range(50, 61)}
    assert [n for n, count in near.items() if count == 84_460] == [56]


def test_the_last_border_is_in_the_count_of_the_multi_tier_network():
    n = (16, 32, 60)
    kernels = 9 * (2 * sum(k * k for k in n) + n[0] * n[1] + n[1] * n[2])
    with_border, without = (kernels + 8 + 28 * n[0] + 10 * n[2] * side**2 + 10 for side in (10, 8))
    assert with_border == TABLE_D1["svhn-multi-tier"].printed == 170_194
    assert without != with_border
    assert MultiTierMON(3, 32, n).equilibrium.operator.sizes == ((34, 34), (18, 18), (10, 10))


def test_table_d1_says_how_the_networks_were_trained():
    for row in TABLE_D1.values():
        assert isinstance(row, Architecture)
        large = row.name.endswith("large")
        assert row.data == row.name.split("-")[0] and row.data in data.NAMES
        assert row.epochs == (65 if large else 40) and row.augmented == large
        assert row.learning_rate == (0.01 if row.name == "cifar10-multi-tier" else 0.001)
        if large:
            assert row.schedule == training.OneCycle(0.05 if "multi" in row.name else 0.01)
            assert row.schedule.up + row.schedule.down + row.schedule.hold == row.epochs
        else:
            assert row.schedule == training.StepDecay(25 if row.name in ("svhn-single", "cifar10-single") else 10)
        assert pickle.loads(pickle.dumps(row)) == copy.deepcopy(row) == row and hash(row) is not None
    with pytest.raises(TypeError):
        TABLE_D1["mine"] = row
    with pytest.raises(dataclasses.FrozenInstanceError):
        row.epochs = 1


def test_an_architecture_passes_further_arguments_on():
    row = TABLE_D1["cifar10-single"]
    solver = DouglasRachford(tol=1e-2)
    model = row.build(solver=solver, m=0.5, activation=prox.Tanh())
    assert model.equilibrium.solver == solver and model.equilibrium.operator.m == 0.5
    assert model.equilibrium.activation == prox.Border(prox.Tanh(), 1)
    with pytest.raises(TypeError, match="widht"):
        row.build(widht=3)


@both
@pytest.mark.parametrize("size", [(8, 4), (4, 12)])
def test_the_output_is_the_readout_of_the_equilibrium_of_an_image(make, size):
    model = make(image_size=size, activation=prox.LeakyReLU(0.2), m=0.5)
    layer, x = model.equilibrium, pictures(size=size)
    W, bias, z = layer.operator.to_dense(), layer.injection(x), layer(x)
    assert z.shape[1:] == bias.shape[1:] == layer.operator.state_shape
    flat = layer.activation((z.flatten(1) @ W.T + bias.flatten(1)).reshape(z.shape))
    torch.testing.assert_close(z, flat, rtol=0, atol=1e-10)
    assert torch.linalg.eigvalsh(torch.eye(len(W)) - (W + W.T) / 2)[0] >= 0.5 - 1e-12
    H, W = size
    if make is convolutional:
        inside = z[:, :, 1 : H + 1, 1 : W + 1].unflatten(3, (-1, 4)).unflatten(2, (-1, 4)).mean((3, 5))
        features = inside.flatten(1)
    else:
        features = layer.operator.split(z)[-1].flatten(1)
        assert features.shape[1] == 2 * (H // 4 + 2) * (W // 4 + 2)
    assert model(x).shape == (4, 3)
    torch.testing.assert_close(model(x), model.readout(features))


@both
def test_the_border_of_the_equilibrium_is_exactly_zero(make):
    layer = make(activation=prox.Softplus()).equilibrium  # which is nowhere zero by itself
    z = layer(pictures())
    pieces = [z] if make is convolutional else layer.operator.split(z)
    for piece in pieces:
        inside = torch.zeros(piece.shape[2:], dtype=torch.bool)
        inside[1:-1, 1:-1] = True
        assert torch.equal(piece[..., ~inside], torch.zeros_like(piece[..., ~inside]))
        assert (piece[..., inside] > 0).all()


def test_nothing_wraps_around():
    """The circular W on a bordered state is W with zero padding: what the far side of an image is changes nothing nearby."""
    torch.manual_seed(0)
    model = convolutional(image_size=(12, 12))
    layer, x = model.equilibrium, pictures(1, (12, 12))
    bigger = convolutional(image_size=(12, 24))
    bigger.equilibrium.load_state_dict(layer.state_dict())
    # With dead pixels (a bias far below zero) to its right the wider picture has the same equilibrium on its left.
    bias = layer.injection(x)
    wide = torch.full((1, 3, 14, 26), -20.0, dtype=torch.float64)
    wide[:, :, :, :14] = bias
    wide[:, :, :, 13] = -20.0
    small_z = SHARP.solve(layer.operator, bias, layer.activation).z
    wide_z = SHARP.solve(bigger.equilibrium.operator, wide, layer.activation).z
    assert torch.equal(wide_z[..., 13:], torch.zeros_like(wide_z[..., 13:]))
    torch.testing.assert_close(wide_z[..., 1:13], small_z[..., 1:13], rtol=0, atol=1e-9)


@both
def test_the_bias_is_zero_where_the_prox_is(make):
    model = make()
    layer = model.equilibrium
    bias = layer.injection(pictures())
    assert torch.equal(layer.activation(bias) != 0, bias > 0)
    first = bias if make is convolutional else layer.operator.split(bias)[0]
    expected = torch.nn.functional.conv2d(pictures(), layer.injection.weight, layer.injection.bias, padding=1)
    torch.testing.assert_close(first[:, :, 1:-1, 1:-1], expected)
    rest = [] if make is convolutional else layer.operator.split(bias)[1:]
    assert not any(bool(tier.any()) for tier in rest)


def test_pooling_with_the_border_starts_in_its_corner_and_cuts_what_is_left():
    model = convolutional(image_size=(8, 5), crop=False)
    assert model.readout.in_features == 3 * 2 * 1
    x = pictures(size=(8, 5))
    z = model.equilibrium(x)
    assert z.shape[2:] == (10, 7)
    cells = torch.stack([z[:, :, i : i + 4, :4].mean((2, 3)) for i in (0, 4)], 2)
    torch.testing.assert_close(model(x), model.readout(cells.flatten(1)))
    same = ConvolutionalMON(crop=False)  # at 28 x 28 both have 7 x 7 cells
    assert count_parameters(same) == 84_460 and not torch.equal(same.readout.weight, model.readout.weight.new_zeros(1))


@both
def test_dtypes_and_devices_move_with_the_network(make):
    model = make(solver=PeacemanRachford(tol=1e-4))
    expected = model(pictures())
    single = copy.deepcopy(model).float()
    found = single(pictures().float())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-3)
    bias = model.equilibrium.injection.to("meta")(pictures().to("meta"))
    assert model.equilibrium.activation(bias).device.type == "meta"  # its mask too
    if torch.cuda.is_available():
        torch.testing.assert_close(single.cuda()(pictures().float().cuda()).cpu(), found, rtol=0, atol=1e-3)


@both
def test_the_solver_is_the_one_that_was_passed(make):
    solver = DouglasRachford(tol=1e-6, max_steps=900)
    model = make(solver=solver)
    model(pictures())
    assert model.equilibrium.solver == solver
    assert model.equilibrium.forward_report.solver == "DouglasRachford"
    assert make(solver=None).equilibrium.solver == PeacemanRachford(tol=1e-3)
    sharp = make()(pictures())
    loose = make(solver=PeacemanRachford(tol=1e-1))(pictures())
    assert 1e-9 < (loose - sharp).abs().max() < 0.3
    torch.testing.assert_close(model(pictures()), sharp, rtol=0, atol=1e-5)


@both
def test_a_convolutional_network_learns(make):
    digits = data.load("mnist-5k").take(20)
    thumbnails = torch.nn.functional.avg_pool2d(digits.images[:, :, 2:-2, 2:-2], 3)
    digits = dataclasses.replace(digits, images=thumbnails)
    options = {"in_channels": 1, "image_size": 8, "classes": 10, "solver": None}
    model = make(channels=4 if make is convolutional else (3, 4, 4), **options).float()
    before = copy.deepcopy(model)
    history = training.fit(model, digits, digits[:10], epochs=15, seed=0, learning_rate=3e-2, progress=False)
    assert history[-1].train_loss < 0.7 * history[0].train_loss
    for (name, old), new in zip(before.named_parameters(), model.parameters(), strict=True):
        assert not torch.equal(old, new), name
    assert model.equilibrium.operator.monotonicity() >= 1 - 1e-4


def test_the_explicit_network_is_three_convolutions_and_the_same_readout():
    torch.manual_seed(0)
    model = CNN(2, (8, 4), 3, 5)
    convolutions = [layer for layer in model if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size) for c in convolutions] == [
        (2, 3, (3, 3)),
        (3, 3, (3, 3)),
        (3, 3, (3, 3)),
    ]
    x = pictures().float()
    z = x
    for c in convolutions:
        z = torch.nn.functional.conv2d(z, c.weight, c.bias, padding=1).relu()
    features = z.unflatten(3, (-1, 4)).unflatten(2, (-1, 4)).mean((3, 5)).flatten(1)
    torch.testing.assert_close(model(x), model[-1](features))
    assert model[-1].weight.shape == ConvolutionalMON(2, (8, 4), 3, 5).readout.weight.shape


@pytest.mark.parametrize(
    ("name", "options"), [("mnist-single", {}), ("cifar10-single", {"in_channels": 3, "image_size": 32}), ("tiny", {"classes": 2})]
)
def test_the_explicit_network_is_the_closest_in_size(name, options):
    count = 300 if name == "tiny" else TABLE_D1[name].parameters
    model = CNN.matching(count, **options)
    width = model[0].out_channels
    gaps = {n: abs(count_parameters(CNN(channels=n, **options)) - count) for n in range(max(width - 3, 1), width + 4)}
    assert min(gaps, key=gaps.get) == width
    if name == "mnist-single":
        assert width == 56 and gaps[56] == 110


def test_the_smallest_explicit_network_has_one_channel():
    smallest = CNN.matching(530)
    assert smallest[0].out_channels == 1 and count_parameters(smallest) == 530


@pytest.mark.parametrize(
    "make",
    [
        lambda: FullyConnectedMON(64, 4, 3),
        lambda: MLP(64, (4,), 3),
        lambda: CNN(1, 8, 3, 3),
        lambda: ConvolutionalMON(1, 8, 3, 3),
        lambda: MultiTierMON(1, 8, (2, 2), 3),
    ],
)
def test_input_of_another_dtype_is_refused_with_the_remedy(make):
    net, x = make(), torch.rand(2, 1, 8, 8)
    with pytest.raises(TypeError, match=r"float64.*pass x\.to\(torch\.float32\)"):
        net(x.double())
    with pytest.raises(TypeError, match=r"uint8.* / 255"):
        net((255 * x).to(torch.uint8))
    with torch.autocast("cpu", torch.bfloat16):
        assert bool(torch.isfinite(net(x.bfloat16())).all())


@pytest.mark.parametrize("shape", [(4, 1, 8, 4), (4, 2, 8, 8), (4, 2, 4, 8), (2, 8, 4), (64,)])
def test_the_explicit_network_refuses_other_images(shape):
    with pytest.raises(ValueError, match=r"x has shape .*; this network is for images of shape \(batch, 2, 8, 4\)"):
        CNN(2, (8, 4), 3, 5)(torch.zeros(shape))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConvolutionalMON(image_size=(30, 28)), r"\(30, 28\).*multiple of 4\..* 28 x 28 and 32 x 28.*pool.*crop=False"),
        (lambda: ConvolutionalMON(image_size=3), r"\(3, 3\).*nearest sizes that fit are 4 x 4;"),
        (lambda: ConvolutionalMON(image_size=1, crop=False), r"pool = 4 is wider than the state, 3 x 3"),
        (lambda: ConvolutionalMON(image_size=(28, 28, 1)), r"image_size = \(28, 28, 1\) must"),
        (lambda: ConvolutionalMON(image_size=28.0), r"image_size = 28\.0 must"),
        (lambda: ConvolutionalMON(channels=0), "channels = 0"),
        (lambda: ConvolutionalMON(pool=0), "pool = 0"),
        (lambda: ConvolutionalMON(kernel_size=2), "kernel_size = 2 .*odd"),
        (lambda: ConvolutionalMON(m=-1.0), r"m = -1\.0"),
        (lambda: MultiTierMON(image_size=(30, 28)), r"\(30, 28\).*each of 3 tiers.*multiple of 4\..* 28 x 28 and 32 x 28"),
        (lambda: MultiTierMON(image_size=(8, 27), channels=(2, 2)), r"each of 2 tiers.*multiple of 2\..* 8 x 26 and 8 x 28"),
        (lambda: MultiTierMON(channels=16), "channels = 16.*two or more tiers"),
        (lambda: MultiTierMON(channels=(16,)), r"channels = \(16,\).*two or more tiers"),
        (lambda: MultiTierMON(channels=(16, 0)), r"channels\[1\] = 0"),
        (lambda: MultiTierMON(kernel_size=4), "kernel_size = 4 .*odd"),
        (lambda: CNN(image_size=30), "nearest sizes that fit are 28 x 28 and 32 x 32"),
        (lambda: CNN(channels=-1), "channels = -1"),
        (lambda: CNN.matching(0), "parameters = 0 must be an integer, at least 530"),
        (lambda: CNN.matching(-5), "parameters = -5 must be an integer, at least 530"),
        (lambda: CNN.matching(529), "parameters = 529 must be an integer, at least 530"),
        (lambda: CNN.matching(8e4), r"parameters = 80000\.0 must be an integer"),
        (lambda: CNN.matching(True), "parameters = True must be an integer"),
        (lambda: CNN.matching(84_460, classes=0), "classes = 0"),
        (lambda: CNN.matching(84_460, image_size=30), "nearest sizes that fit are 28 x 28 and 32 x 32"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@both
def test_other_images_and_activations_are_refused(make):
    model = make()
    for shape in ((4, 1, 8, 4), (4, 2, 8, 8), (2, 8, 4)):
        with pytest.raises(ValueError, match=r"images of shape \(batch, 2, 8, 4\)"):
            model(torch.zeros(shape, dtype=torch.float64))
    with pytest.raises((TypeError, ValueError)):
        make(activation=nn.GELU())
    with pytest.raises(TypeError, match="solver"):
        make(solver=PeacemanRachford)


@pytest.mark.parametrize("parameters", [-3, 0, 804, 1e4, True])
def test_an_explicit_network_of_no_size_is_refused(parameters):
    with pytest.raises(ValueError, match=r"parameters = .* must be an integer, at least 805: so many has one unit"):
        MLP.matching(parameters)
    assert MLP.matching(805)[1].out_features == 1
