"""The classifiers: sizes as in Table D1, gradients, batches, errors."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from mon_lib import prox
from mon_lib.networks import MLP, FullyConnectedMON, count_parameters
from mon_lib.splitting import PeacemanRachford

SHARP = PeacemanRachford(tol=1e-12)


def small(seed=0, **options):
    torch.manual_seed(seed)
    options = {"in_features": 6, "units": 5, "classes": 3, "solver": SHARP} | options
    return FullyConnectedMON(**options).double()


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


@pytest.mark.parametrize("normalised", [False, True])
def test_every_parameter_has_the_gradient_of_finite_differences(normalised):
    model = small(normalised=normalised)
    x = torch.randn(7, 6, dtype=torch.float64)
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


def test_a_sample_alone_and_in_a_batch_gives_the_same_logits():
    model = small()
    x = torch.randn(9, 6, dtype=torch.float64)
    together = model(x)
    alone = torch.cat([model(x[i : i + 1]) for i in range(9)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-10)


def test_copies_and_state_dict_give_the_same_network():
    model = small()
    x = torch.randn(3, 6, dtype=torch.float64)
    cross_entropy(model(x), torch.tensor([0, 1, 2])).backward()
    expected = model(x)
    other = small(seed=1)
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
        (lambda: MLP.matching(50), r"widths\[0\] = 0"),
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
