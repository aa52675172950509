"""The authors' checkpoint layout, rebuilt here from its description alone, loads and solves."""

import pickle

import pytest
import torch
from torch import nn

from mon_lib import interop
from mon_lib.networks import MLP, FullyConnectedMON
from mon_lib.splitting import ForwardBackward, PeacemanRachford


class Layout(nn.Module):
    """A network of plain linear maps with the names of the released files, and its equilibrium by Newton's method."""

    def __init__(self, n_in=20, n=9, classes=4, m=1.0):
        super().__init__()
        self.m = m
        self.mon = nn.Module()
        self.mon.linear_module = nn.Module()
        self.mon.linear_module.U = nn.Linear(n_in, n)
        self.mon.linear_module.A = nn.Linear(n, n, bias=False)
        self.mon.linear_module.B = nn.Linear(n, n, bias=False)
        self.Wout = nn.Linear(n, classes)

    def multiply(self, z):
        A, B = self.mon.linear_module.A, self.mon.linear_module.B
        return (1 - self.m) * z - A(z) @ A.weight + B(z) - z @ B.weight

    def equilibrium(self, x):
        """Active-set Newton steps from the averaged iteration, one sample at a time."""
        bias = self.mon.linear_module.U(x)
        n = bias.shape[1]
        W = self.multiply(torch.eye(n, dtype=x.dtype)).T
        z = torch.zeros_like(bias)
        for _ in range(20000):
            z = z + 0.02 * ((z @ W.T + bias).relu() - z)
        for _ in range(3):
            active = (z @ W.T + bias > 0).to(x.dtype)
            z = torch.stack(
                [torch.linalg.solve(torch.eye(n, dtype=x.dtype) - s[:, None] * W, s * b) for s, b in zip(active, bias, strict=True)]
            )
        assert (z - (z @ W.T + bias).relu()).abs().max() < 1e-12
        return z

    def forward(self, x):
        return self.Wout(self.equilibrium(x))


@pytest.fixture
def layout():
    torch.manual_seed(0)
    model = Layout().double()
    with torch.no_grad():
        model.mon.linear_module.A.weight.mul_(2.0)
        model.mon.linear_module.B.weight.mul_(3.0)
    return model


def ours(solver=None, dtype=torch.float64, **options):
    torch.manual_seed(1)
    solver = PeacemanRachford(tol=1e-12) if solver is None else solver
    return FullyConnectedMON(**{"in_features": 20, "units": 9, "classes": 4} | options, solver=solver).to(dtype)


@pytest.mark.parametrize("solver", [PeacemanRachford(tol=1e-12), ForwardBackward(tol=1e-12, max_steps=20000)], ids=["pr", "fb"])
@pytest.mark.parametrize("m", [1.0, 0.3])
def test_the_loaded_network_has_the_same_equilibria_and_logits(layout, m, solver):
    layout.m = m
    model = ours(solver, m=m)
    interop.load_reference_state_dict(model, layout.state_dict())
    x = torch.randn(16, 20, dtype=torch.float64)
    with torch.no_grad():
        expected = layout.equilibrium(x)
        assert 0.2 < (expected > 0).double().mean() < 0.8
        torch.testing.assert_close(model.equilibrium(x), expected, rtol=0, atol=1e-10)
        torch.testing.assert_close(model(x), layout(x), rtol=0, atol=1e-10)


def test_a_file_loads_with_weights_only(layout, tmp_path):
    torch.save(layout.state_dict(), tmp_path / "dense.pt")
    from_file, from_dict = ours(), ours()
    interop.load_reference_state_dict(from_file, tmp_path / "dense.pt")
    interop.load_reference_state_dict(from_dict, layout.state_dict())
    for a, b in zip(from_file.parameters(), from_dict.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(FileNotFoundError):
        interop.load_reference_state_dict(ours(), tmp_path / "nowhere.pt")


def test_the_model_keeps_its_dtype_and_owns_its_weights(layout):
    model = ours(dtype=torch.float32, solver=PeacemanRachford(tol=1e-4))
    state = {key: value.clone() for key, value in layout.state_dict().items()}
    interop.load_reference_state_dict(model, state)
    assert all(p.dtype == torch.float32 for p in model.parameters())
    state["Wout.bias"].fill_(99.0)
    torch.testing.assert_close(model.readout.bias, layout.Wout.bias.float())


def test_a_loaded_network_trains(layout):
    model = ours()
    interop.load_reference_state_dict(model, layout.state_dict())
    model(torch.randn(5, 20, dtype=torch.float64)).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())


def test_every_fault_is_named_and_nothing_is_loaded(layout):
    state = dict(layout.state_dict())
    del state["mon.linear_module.U.bias"]
    state["mon.linear_module.g"] = torch.tensor(1.0)
    state["mon.linear_module.A.weight"] = torch.zeros(9, 8)
    state["Wout.weight"] = torch.full((4, 9), float("nan"))
    state["Wout.bias"] = [0.0] * 4
    model = ours()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(ValueError, match="nothing was loaded") as caught:
        interop.load_reference_state_dict(model, state)
    message = str(caught.value)
    for part in (
        "missing mon.linear_module.U.bias",
        "unknown mon.linear_module.g",
        "mon.linear_module.A.weight has shape (9, 8), expected (9, 9)",
        "Wout.weight has a NaN",
        "Wout.bias is a list",
    ):
        assert part in message
    assert "B.weight" not in message
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_models_without_this_layout_are_refused(layout):
    with pytest.raises(TypeError, match="normalised=False"):
        interop.load_reference_state_dict(ours(normalised=True), layout.state_dict())
    with pytest.raises(TypeError, match="MLP"):
        interop.load_reference_state_dict(MLP(), layout.state_dict())


class Trap:
    def __reduce__(self):
        return print, ("sprung",)


@pytest.mark.parametrize("content", [b"", b"nonsense", pickle.dumps(Trap(), 2), None], ids=["empty", "garbage", "code", "list"])
def test_files_that_are_not_a_dict_of_tensors_are_refused(tmp_path, content, capsys):
    path = tmp_path / "dense.pt"
    if content is None:
        torch.save([torch.zeros(3)], path)
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"dense\.pt"):
        interop.load_reference_state_dict(ours(), path)
    assert capsys.readouterr().out == ""


def test_the_layout_of_the_paper_has_its_size():
    model = Layout(784, 87, 10)
    assert sum(p.numel() for p in model.parameters()) == 84_313
    assert set(model.state_dict()) == set(interop.KEYS)
    interop.load_reference_state_dict(FullyConnectedMON(), model.state_dict())
