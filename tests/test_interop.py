"""The authors' checkpoint layouts, rebuilt here from their description alone, load and solve."""

import itertools
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mon_lib import interop
from mon_lib.networks import MLP, ConvolutionalMON, FullyConnectedMON, MultiTierMON
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


@pytest.mark.parametrize(
    "content",
    [b"", b"nonsense", b"junk", b"e", b"\x80\x02q", b"(\x80", pickle.dumps(Trap(), 2), None],
    ids=["empty", "garbage", "short", "one byte", "cut", "two bytes", "code", "list"],
)
def test_files_that_are_not_a_dict_of_tensors_are_refused(tmp_path, content, capsys):
    path = tmp_path / "dense.pt"
    if content is None:
        torch.save([torch.zeros(3)], path)
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"dense\.pt"):
        interop.load_reference_state_dict(ours(), path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("value", [None, [("Wout.bias", torch.zeros(4))], 3])
def test_what_is_no_dict_is_named(value):
    with pytest.raises(TypeError, match=f"state_dict is a {type(value).__name__}; pass a dict of tensors by name, or the path"):
        interop.load_reference_state_dict(ours(), value)


def test_a_module_is_told_to_pass_its_state_dict(layout):
    with pytest.raises(TypeError, match=r"state_dict is a Layout; .*; pass its state_dict\(\)"):
        interop.load_reference_state_dict(ours(), layout)


def test_a_wrapper_is_named_with_how_to_strip_it(layout, tmp_path):
    plain = layout.state_dict()
    parallel = nn.DataParallel(layout).state_dict()
    training = {"epoch": 3, "optimizer": {"lr": {"a": 0.1}}, "state_dict": plain}
    whole = r"; strip that, pass checkpoint\['state_dict'\]; nothing was loaded"
    strip = r"pass \{key\.removeprefix\('%s'\): value for key, value in %s\.items\(\)\}; nothing was loaded"
    for state, message in (
        (training, r"in checkpoint\['state_dict'\]" + whole),
        ({"a": {"b": plain}}, r"in checkpoint\['a'\]\['b'\]; strip that, pass checkpoint\['a'\]\['b'\]; nothing"),
        (parallel, "prefix 'module.'; strip that, " + strip % (r"module\.", "checkpoint")),
        ({"_orig_mod." + key: value for key, value in plain.items()}, "prefix '_orig_mod.'"),
        (
            training | {"state_dict": parallel},
            r"in checkpoint\['state_dict'\], and the keys have the prefix 'module\.'; strip that, "
            + strip % (r"module\.", r"checkpoint\['state_dict'\]"),
        ),
    ):
        torch.save(state, tmp_path / "wrapped.pt")
        for source in (state, tmp_path / "wrapped.pt"):
            model = ours()
            before = [p.clone() for p in model.parameters()]
            with pytest.raises(ValueError, match=message) as caught:
                interop.load_reference_state_dict(model, source)
            assert "unknown" not in str(caught.value)
            assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    cycle = {}
    cycle["a"] = cycle
    for state in (cycle, {"state_dict": {"weight": torch.zeros(1)}}):
        with pytest.raises(ValueError, match="unknown"):
            interop.load_reference_state_dict(ours(), state)


def test_the_advice_for_a_wrapper_works(layout):
    checkpoint = {"state_dict": nn.DataParallel(layout).state_dict()}
    with pytest.raises(ValueError) as caught:
        interop.load_reference_state_dict(ours(), checkpoint)
    advice = str(caught.value).partition("pass ")[2].removesuffix("; nothing was loaded")
    advised, plain = ours(), ours()
    interop.load_reference_state_dict(advised, eval(advice, {"checkpoint": checkpoint}))
    interop.load_reference_state_dict(plain, layout.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(advised.parameters(), plain.parameters(), strict=True))


def test_the_layout_of_the_paper_has_its_size():
    model = Layout(784, 87, 10)
    assert sum(p.numel() for p in model.parameters()) == 84_313
    assert set(model.state_dict()) == set(interop.KEYS)
    interop.load_reference_state_dict(FullyConnectedMON(), model.state_dict())


# ----------------------------------------------------------------------------------------------- convolutions


def circular(x, kernel, bias=None, stride=1):
    return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), kernel, bias, stride)


def matrix(function, *shape):
    """A linear function of images as a matrix that acts on flattened ones."""
    n = torch.Size(shape).numel()
    return function(torch.eye(n, dtype=torch.float64).reshape(n, *shape)).flatten(1).T


def unit(kernel):
    return kernel / kernel.square().sum().sqrt()


def kernels(*pairs):
    return nn.ModuleList(nn.Conv2d(before, after, 3, bias=False) for before, after in pairs)


class Convolutional(nn.Module):
    """What the two convolutional layouts share: a circular W as a matrix, and an equilibrium by plain small steps."""

    def __init__(self, size, m):
        super().__init__()
        self.size, self.m = size, m
        self.mon = nn.Module()
        self.mon.linear_module = nn.Module()

    @property
    def names(self):
        return self.mon.linear_module

    def inject(self, x):
        return circular(F.pad(x, (1, 1, 1, 1)), self.names.U.weight, self.names.U.bias)

    def weights(self):
        """W, shape (n, n)."""
        A, B = self.blocks()
        return (1 - self.m) * torch.eye(len(A), dtype=torch.float64) - A.T @ A + B - B.T

    def interior(self):
        masks = []
        for n, H, W in self.shapes():
            mask = torch.zeros(n, H, W, dtype=torch.bool)
            mask[:, 1:-1, 1:-1] = True
            masks.append(mask.flatten())
        return torch.cat(masks)

    def equilibrium(self, x):
        """z, shape (batch, n), by z <- sigma(z - t (z - Wz - bias)) with t = m/L^2, until it stands still."""
        with torch.no_grad():
            W, inside = self.weights(), self.interior()
            bias = self.inject(x).flatten(1)
            bias = F.pad(bias, (0, len(W) - bias.shape[1]))
            gap = torch.eye(len(W), dtype=torch.float64) - W
            assert torch.linalg.eigvalsh(gap + gap.T)[0] > 2 * self.m - 1e-10
            t = self.m / torch.linalg.matrix_norm(gap, 2) ** 2
            z, change = torch.zeros_like(bias), torch.tensor(1.0)
            for _ in range(20000):
                new = (z - t * (z @ gap.T - bias)).relu() * inside
                z, change = new, (new - z).abs().max()
                if change < 1e-15:
                    break
            assert (z - (z @ W.T + bias).relu() * inside).abs().max() < 1e-12
            return z

    def forward(self, x):
        return self.Wout(self.features(self.equilibrium(x)))


class Single(Convolutional):
    def __init__(self, size=(6, 5), n=3, classes=4, m=1.0, inputs=2):
        super().__init__(size, m)
        names, self.n = self.names, n
        names.U = nn.Conv2d(inputs, n, 3)
        names.A, names.B = kernels((n, n), (n, n))
        names.g, names.h = nn.Parameter(torch.tensor(2.5)), nn.Parameter(torch.tensor(-1.5))
        self.Wout = nn.Linear(n * ((size[0] + 2) // 4) * ((size[1] + 2) // 4), classes)

    def shapes(self):
        return [(self.n, self.size[0] + 2, self.size[1] + 2)]

    def blocks(self):
        names, (shape,) = self.names, self.shapes()
        A = names.g.sqrt() * matrix(lambda z: circular(z, unit(names.A.weight)), *shape)
        return A, names.h * matrix(lambda z: circular(z, unit(names.B.weight)), *shape)

    def features(self, z):
        return F.avg_pool2d(z.unflatten(1, self.shapes()[0]), 4).flatten(1)

    def build(self, **options):
        n_in = self.names.U.in_channels
        return ConvolutionalMON(n_in, self.size, self.n, self.Wout.out_features, **{"m": self.m, "crop": False} | options)


class Tiered(Convolutional):
    def __init__(self, size=(8, 4), n=(3, 2, 4), classes=4, m=1.0, inputs=2):
        super().__init__(size, m)
        names, self.n = self.names, n
        names.U = nn.Conv2d(inputs, n[0], 3)
        names.A0, names.B0 = (kernels(*((k, k) for k in n)) for _ in range(2))
        names.A_n0 = kernels(*itertools.pairwise(n))
        names.g = nn.ParameterList(torch.tensor(v) for v in (2.5, 0.7, 1.3)[: len(n)])
        names.gn = nn.ParameterList(torch.tensor(v) for v in (1.7, 0.4)[: len(n) - 1])
        names.h = nn.ParameterList(torch.tensor(v) for v in (-1.5, 0.8, 2.0)[: len(n)])
        self.Wout = nn.Linear(torch.Size(self.shapes()[-1]).numel(), classes)

    def shapes(self):
        return [(n, *(s // 2**i + 2 for s in self.size)) for i, n in enumerate(self.n)]

    def blocks(self):
        """A and B with their subdiagonal blocks, those of B such that nothing of W is left above its diagonal."""
        names, shapes = self.names, self.shapes()
        sizes = [torch.Size(shape).numel() for shape in shapes]
        A = [[torch.zeros(rows, columns, dtype=torch.float64) for columns in sizes] for rows in sizes]
        B = [[block.clone() for block in row] for row in A]
        for i, shape in enumerate(shapes):
            A[i][i] = names.g[i].sqrt() * matrix(lambda z, i=i: circular(z, unit(names.A0[i].weight)), *shape)
            B[i][i] = names.h[i] * matrix(lambda z, i=i: circular(z, unit(names.B0[i].weight)), *shape)
        for i, shape in enumerate(shapes[:-1]):

            def down(z, i=i):
                return F.pad(circular(z, unit(names.A_n0[i].weight), stride=2), (0, 1, 0, 1))

            A[i + 1][i] = names.gn[i].sqrt() * matrix(down, *shape)
            B[i + 1][i] = -A[i + 1][i + 1].T @ A[i + 1][i]
        A, B = (torch.cat([torch.cat(row, 1) for row in blocks]) for blocks in (A, B))
        assert (B - B.T - A.T @ A)[: sizes[0], sizes[0] :].abs().max() < 1e-12
        return A, B

    def features(self, z):
        return z[:, -self.Wout.in_features :]

    def build(self, **options):
        return MultiTierMON(self.names.U.in_channels, self.size, self.n, self.Wout.out_features, **{"m": self.m} | options)


def released(kind, seed=0, **options):
    torch.manual_seed(seed)
    return kind(**options).double()


def images(layout, batch=6, dtype=torch.float64):
    x = torch.randn(batch, layout.names.U.in_channels, *layout.size, dtype=dtype, generator=torch.Generator().manual_seed(3))
    return 2.0 * x


def loaded(layout, state=None, solver=None, **options):
    torch.manual_seed(1)
    model = layout.build(solver=PeacemanRachford(tol=1e-11) if solver is None else solver, **options).double()
    interop.load_reference_state_dict(model, layout.state_dict() if state is None else state)
    return model


kinds = pytest.mark.parametrize("kind", [Single, Tiered])


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Single, {}),
        (Single, {"m": 0.3}),
        (Single, {"size": (7, 10), "n": 2}),  # pools 8 x 12 of 9 x 12 pixels
        (Tiered, {}),
        (Tiered, {"m": 0.3}),
        (Tiered, {"size": (4, 8), "n": (2, 3, 2), "inputs": 1}),
        (Tiered, {"size": (4, 6), "n": (2, 3)}),
    ],
)
def test_a_loaded_convolutional_network_has_the_same_equilibria_and_logits(kind, options):
    layout = released(kind, **options)
    model, x = loaded(layout), images(layout)
    with torch.no_grad():
        W = layout.weights()
        torch.testing.assert_close(model.equilibrium.operator.to_dense(), W, rtol=0, atol=1e-12)
        expected = layout.equilibrium(x)
        assert 0.2 < (expected[:, layout.interior()] > 0).double().mean() < 0.9
        torch.testing.assert_close(model.equilibrium(x).flatten(1), expected, rtol=0, atol=1e-9)
        torch.testing.assert_close(model(x), layout(x), rtol=0, atol=1e-9)


@kinds
def test_scalars_keep_their_values_and_signs(kind):
    layout = released(kind)
    operator = loaded(layout).equilibrium.operator
    names = layout.names
    if kind is Single:
        assert float(operator.g.detach()) == pytest.approx(2.5) and float(operator.h.detach()) == -1.5
    else:
        torch.testing.assert_close(operator.g.detach(), torch.stack(list(names.g)).detach())
        torch.testing.assert_close(operator.down_g.detach(), torch.stack(list(names.gn)).detach())
        torch.testing.assert_close(operator.h.detach(), torch.stack(list(names.h)).detach())


@kinds
@pytest.mark.parametrize("g", [1e-30, 1e-3, 40.0, 1e6])
def test_small_and_large_g_survive(kind, g):
    layout = released(kind)
    state = {key: torch.tensor(g, dtype=torch.float64) if ".g" in key else value for key, value in layout.state_dict().items()}
    operator = loaded(layout, state).equilibrium.operator
    found = operator.g.detach() if kind is Single else torch.cat([operator.g.detach(), operator.down_g.detach()])
    torch.testing.assert_close(found, torch.full_like(found, g), rtol=1e-12, atol=0)


@kinds
def test_a_convolutional_file_loads_and_the_model_keeps_its_dtype(kind, tmp_path):
    layout = released(kind)
    torch.save(layout.float().state_dict(), tmp_path / "net.pt")
    layout.double()
    torch.manual_seed(2)
    solver = PeacemanRachford(tol=1e-4)
    from_file, from_dict = layout.build(solver=solver), layout.build(solver=solver)
    interop.load_reference_state_dict(from_file, tmp_path / "net.pt")
    interop.load_reference_state_dict(from_dict, layout.state_dict())
    for a, b in zip(from_file.parameters(), from_dict.parameters(), strict=True):
        assert a.dtype == b.dtype == torch.float32 and a.requires_grad
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    x = images(layout)
    torch.testing.assert_close(from_file(x.float()).double(), layout(x), rtol=0, atol=1e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@kinds
def test_the_model_keeps_its_device(kind):
    layout = released(kind)
    model = layout.build(solver=PeacemanRachford(tol=1e-11)).double().cuda()
    interop.load_reference_state_dict(model, layout.state_dict())
    assert all(p.device.type == "cuda" for p in model.parameters())
    x = images(layout)
    torch.testing.assert_close(model(x.cuda()).cpu(), layout(x), rtol=0, atol=1e-8)
    other = layout.build(solver=PeacemanRachford(tol=1e-11)).double()
    interop.load_reference_state_dict(other, layout.cuda().state_dict())
    torch.testing.assert_close(other(x), model(x.cuda()).cpu(), rtol=0, atol=1e-8)


@kinds
def test_a_loaded_convolutional_network_owns_its_weights_and_trains(kind):
    layout = released(kind)
    state = {key: value.clone() for key, value in layout.state_dict().items()}
    model, x = loaded(layout, state), images(layout)
    before = model(x)
    for value in state.values():
        value.fill_(9.0)
    torch.testing.assert_close(model(x), before, rtol=0, atol=1e-9)
    before.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())


@kinds
def test_scalars_of_shape_one_are_scalars(kind):
    layout = released(kind)
    state = {key: value.reshape(1) if value.ndim == 0 else value for key, value in layout.state_dict().items()}
    for a, b in zip(loaded(layout, state).parameters(), loaded(layout).parameters(), strict=True):
        assert torch.equal(a, b)


@kinds
@pytest.mark.parametrize(
    ("g", "message"),
    [
        (-0.25, r" = -0\.25 is not positive: MON Proposition 1 then fails.*exists, or only one"),
        (0.0, " = 0 is not positive: it is softplus .* never zero"),
        (float("nan"), " has a NaN or an infinite entry"),
        (float("inf"), " has a NaN or an infinite entry"),
    ],
)
def test_a_g_that_is_not_positive_is_refused_with_the_reason(kind, g, message):
    layout = released(kind)
    keys = ["g"] if kind is Single else ["g.1", "gn.0"]
    for key in ("mon.linear_module." + key for key in keys):
        with pytest.raises(ValueError, match="nothing was loaded: " + key.replace(".", r"\.") + message):
            loaded(layout, layout.state_dict() | {key: torch.tensor(g)})
    negative_h = "h" if kind is Single else "h.1"
    loaded(layout, layout.state_dict() | {"mon.linear_module." + negative_h: torch.tensor(-3.0)})


def test_a_negative_g_leaves_several_equilibria():
    """Why it is refused: with g = -8 the scalar network z = max(8z - 1, 0) of one pixel has the equilibria 0 and 1/7."""
    layout = released(Single, size=(2, 2), n=1, inputs=1)
    with torch.no_grad():
        layout.names.A.weight.zero_()[0, 0, 1, 1] = 1.0
        layout.names.h.zero_()
    A, _ = layout.blocks()
    W = 8.0 * (A.T @ A) / layout.names.g.detach()
    for z in (0.0, 1 / 7):
        state = z * layout.interior().double()
        torch.testing.assert_close((W @ state - 1.0).relu() * layout.interior(), state)


@kinds
def test_every_fault_of_a_convolutional_file_is_named_and_nothing_is_loaded(kind):
    layout, p = released(kind), "mon.linear_module."
    state = layout.state_dict()
    B = p + ("B.weight" if kind is Single else "B0.1.weight")
    g = p + ("g" if kind is Single else "gn.1")
    del state[p + "U.bias"]
    state |= {p + "C.weight": torch.zeros(1), g: torch.tensor(-1.0), B: torch.zeros(1, 2, 3, 3)}
    state |= {"Wout.weight": torch.full_like(layout.Wout.weight, float("nan")), "Wout.bias": torch.zeros(4, dtype=torch.long)}
    model = layout.build()
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match="nothing was loaded") as caught:
        interop.load_reference_state_dict(model, state)
    message = str(caught.value)
    for part in (
        f"missing {p}U.bias",
        f"unknown {p}C.weight",
        f"{g} = -1 is not positive",
        f"{B} has shape (1, 2, 3, 3), expected",
        "Wout.weight has a NaN",
        "Wout.bias is a torch.int64",
    ):
        assert part in message
    assert "U.weight" not in message and "images of" not in message
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@kinds
def test_zero_kernels_and_numbers_too_large_are_refused(kind):
    layout, p = released(kind), "mon.linear_module."
    A = p + ("A.weight" if kind is Single else "A_n0.0.weight")
    zero = torch.zeros_like(layout.state_dict()[A])
    with pytest.raises(ValueError, match=r"nothing was loaded: .* is zero, and cannot be divided by its norm"):
        loaded(layout, layout.state_dict() | {A: zero})
    h = p + ("h" if kind is Single else "h.0")
    with pytest.raises(ValueError, match=r"nothing was loaded: .* too large for the model's torch\.float32"):
        interop.load_reference_state_dict(layout.build(), layout.state_dict() | {h: torch.tensor(1e60, dtype=torch.float64)})


@kinds
def test_numbers_that_vanish_in_the_models_dtype_are_refused(kind):
    layout, p = released(kind), "mon.linear_module."
    single = kind is Single
    g, A = (p + "g", p + "A.weight") if single else (p + "gn.0", p + "B0.1.weight")
    kernel = torch.full_like(layout.state_dict()[A], 1e-60)
    for values, message in (
        (
            {g: torch.tensor(1e-60, dtype=torch.float64)},
            r" = 1e-60 is not positive in the model's torch\.float32 but 0: .*double\(\)",
        ),
        ({g: torch.tensor(1e60, dtype=torch.float64)}, r" has an entry too large for the model's torch\.float32"),
        ({A: kernel}, r" is zero in the model's torch\.float32, and cannot be divided by its norm; .*double\(\)"),
        ({A: kernel * 1e120}, r" has an entry too large for the model's torch\.float32"),
    ):
        (key,) = values
        model = layout.build().float()
        before = [parameter.clone() for parameter in model.parameters()]
        with pytest.raises(ValueError, match="nothing was loaded: " + key.replace(".", r"\.") + message):
            interop.load_reference_state_dict(model, layout.state_dict() | values)
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        interop.load_reference_state_dict(layout.build().double(), layout.state_dict() | values)  # as advised


def test_a_file_for_another_model_names_that_model(layout):
    single, tiered = released(Single, size=(8, 8)), released(Tiered)
    for model in (ours(), ours(normalised=True), single.build(), single.build(crop=True), tiered.build()):
        for file, name in ((layout, "FullyConnectedMON"), (single, "ConvolutionalMON"), (tiered, "MultiTierMON")):
            if type(model).__name__ != name:
                with pytest.raises(ValueError, match=f"for a {name}, and the model is a {type(model).__name__}; nothing"):
                    interop.load_reference_state_dict(model, file.state_dict())


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Single, {"crop": True}, "crop=False and pool=4, not crop=True"),
        (Single, {"pool": 3}, "not crop=False and pool=3"),
        (Single, {"kernel_size": 5}, "kernel_size=3, not 5"),
        (Tiered, {"kernel_size": 1}, "kernel_size=3, not 1"),
    ],
)
def test_models_that_are_not_built_as_the_released_ones_are_refused(kind, options, message):
    with pytest.raises(TypeError, match=message):
        loaded(released(kind, size=(8, 8)), **options)


def test_a_readout_for_other_images_says_which():
    for kind, inside, part in (
        (Single, (14, 14), "images of 6 x 5, these weights for sides of 14 to 17"),
        (Tiered, (12, 12), "images of 8 x 4, these weights for 12 x 12 (a side that halves exactly"),
        (Tiered, (12, 16), "images of 8 x 4 (a side that halves exactly from tier to tier is a multiple of 4)"),
    ):
        with pytest.raises(ValueError, match=r"nothing was loaded: Wout\.weight has shape") as caught:
            interop.load_reference_state_dict(released(kind).build(), released(kind, size=inside).state_dict())
        assert part in str(caught.value)


def test_the_number_of_tiers_has_to_agree():
    two, three = released(Tiered, size=(8, 8), n=(3, 2)), released(Tiered, size=(8, 8), n=(3, 2, 4))
    with pytest.raises(ValueError, match=r"missing mon\.linear_module\.A0\.2\.weight"):
        loaded(three, two.state_dict())
    with pytest.raises(ValueError, match=r"unknown mon\.linear_module\.gn\.1"):
        loaded(two, three.state_dict())


@pytest.mark.parametrize(
    ("kind", "size", "n", "inputs", "count"),
    [
        (Single, 28, 56, 1, 84_460),
        (Single, 32, 81, 3, 172_218),
        (Tiered, 28, (16, 32, 32), 1, 81_394),
        (Tiered, 32, (16, 32, 60), 3, 170_194),
    ],
)
def test_the_convolutional_layouts_of_the_paper_have_their_sizes(kind, size, n, inputs, count):
    layout = released(kind, size=(size, size), n=n, inputs=inputs, classes=10)
    assert sum(p.numel() for p in layout.parameters()) == count
    model = loaded(layout)
    assert sum(p.numel() for p in model.parameters()) == count
