"""The pass of `forward_and_ladj` over its vectors: how they lie in memory, ranges of sums and products, and torch.func."""

import pytest
import torch
from torch.func import functional_call, jacrev, vmap

from mon_lib.reflections import InvertibleReflection, _layout
from mon_lib.reflections._layout import Layout, blocks
from mon_lib.reflections._log_det import groups

SHAPES = [
    ((7, 4), -1),
    ((3, 4, 9, 8), 1),
    ((3, 4, 5), 1),
    ((4, 70), 0),
    ((2, 3, 4, 80), -2),
    ((4,), 0),
    ((0, 4, 9, 8), 1),
    ((2, 4, 0), 1),
]
CUTS = {
    "channels first": lambda x: x,
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "some channels": lambda x: x[:, 1:5],
    "one image, expanded": lambda x: x[:1, :4].expand(3, -1, -1, -1),
    "turned": lambda x: x[:, :4].mT,
    "every other": lambda x: x[::2, ::2],
}


def layer(dim=-1, kappa=1.9, d=4, dtype=torch.float64):
    torch.manual_seed(0)
    g = InvertibleReflection(d, kappa, dim=dim, dtype=dtype)
    torch.nn.init.normal_(g.weight)
    return g


@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_vectors_go_into_matrices_and_back(shape, dim):
    x = torch.randn(shape)
    layout = Layout.of(x, dim)
    X = layout.matrices(x)
    assert X.shape == (layout.sizes[0], 4, layout.sizes[1])
    out = layout.empty(X).copy_(X)
    assert torch.equal(layout.vectors(out), x)
    assert layout.vectors(out).stride() == x.stride() or not x.numel()
    numbers = x.movedim(dim, 0)[0].contiguous()
    assert torch.equal(layout.numbers(numbers)[:, 0], X[:, 0])
    assert layout.numbers(numbers).data_ptr() == numbers.data_ptr(), "a view: the forward pass writes through it"


@pytest.mark.parametrize("size", [1, 10, 100, 2**17])
@pytest.mark.parametrize("shape", [(7, 4, 9), (1, 4, 50), (3, 4, 1), (0, 4, 5), (2, 4, 0)], ids=str)
def test_blocks_are_all_of_it_and_the_first_is_the_largest(size, shape, monkeypatch):
    monkeypatch.setattr(_layout, "BLOCK", size)
    X, parts = torch.zeros(shape), []
    for at in blocks(X):
        X[at] += 1
        parts.append(X[at].shape)
    assert bool((X == 1).all())
    assert all(a <= b for part in parts for a, b in zip(part, parts[0], strict=True))
    most = 2 * max(size * torch.get_num_threads(), 4 * min(shape[0], shape[2]))
    assert parts[0].numel() <= most, "cut along the longer of the two axes"


@pytest.mark.parametrize("block", [50, 2**17])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_any_strides_and_any_blocks(cut, block, monkeypatch):
    x = cut(torch.randn(3, 4 if cut in list(CUTS.values())[:2] else 8, 9, 8, dtype=torch.float64))
    g = layer(1)
    expected = g.forward_and_ladj(x.contiguous())
    slope = torch.autograd.grad(sum(part.sin().sum() for part in expected), g.weight)
    monkeypatch.setattr(_layout, "BLOCK", block)
    found = g.forward_and_ladj(x)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    other = torch.autograd.grad(sum(part.sin().sum() for part in found), g.weight)
    torch.testing.assert_close(other, slope, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("block", [100, 2**17])
@pytest.mark.parametrize("axis", [0, 2])
def test_a_batch_by_vmap_is_one_more_axis_of_vectors(axis, block, monkeypatch):
    monkeypatch.setattr(_layout, "BLOCK", block)
    x = torch.randn(2, 4, 9, 8, dtype=torch.float64)
    batch = torch.stack([x, 2 * x, -x], axis)
    for dim in (1, -3):
        g = layer(dim)
        y, ladj = vmap(g.forward_and_ladj, in_dims=axis)(batch)
        for found, part in zip(zip(y, ladj, strict=True), batch.unbind(axis), strict=True):
            for a, b in zip(found, g.forward_and_ladj(part), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)
        slopes = vmap(torch.func.grad(lambda x, g=g: sum(part.sin().sum() for part in g.forward_and_ladj(x))), axis)(batch)
        batched = batch.movedim(axis, 0).clone().requires_grad_()
        sum(part.sin().sum() for x in batched for part in g.forward_and_ladj(x)).backward()
        torch.testing.assert_close(slopes, batched.grad, rtol=1e-12, atol=1e-12)
        small = x[:1]
        J = jacrev(lambda x, g=g: g.forward_and_ladj(x)[1].sum((1, 2)))(small)
        expected = torch.autograd.functional.jacobian(lambda x, g=g: g.forward_and_ladj(x)[1].sum((1, 2)), small)
        torch.testing.assert_close(J, expected, rtol=1e-12, atol=1e-12)


def test_a_vmap_within_a_vmap_and_gradients_of_the_weight_for_each_sample():
    g, x = layer(), torch.randn(3, 2, 5, 4, dtype=torch.float64)
    for found, expected in zip(vmap(vmap(g.forward_and_ladj))(x), g.forward_and_ladj(x), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.g = g

        def forward(self, x):
            return sum(part.sin().sum() for part in self.g.forward_and_ladj(x))

    both, rows = Both(), x[0, 0]
    per_row = vmap(lambda row: torch.func.grad(lambda w: functional_call(both, {"g.weight": w}, (row,)))(g.weight.detach()))(rows)
    for row, slope in zip(rows, per_row, strict=True):
        torch.testing.assert_close(slope, torch.autograd.grad(both(row), g.weight)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kappa", [1.0001, 1.5, 1.9, 2 - 1e-6, 2 - 1e-15])
def test_products_stay_in_range(kappa, dtype):
    """Of all factors at the least g, and of all at the greatest."""
    limits = torch.finfo(dtype)
    top = min(kappa - 1, 1 - limits.eps)
    for d in (1, 5, 48, 2000):
        n = groups(d, kappa, dtype)
        assert 1 <= n <= d
        low, high = (torch.full((-(-d // n),), g, dtype=dtype).prod() for g in ((1 - top) / (1 + top), 1 + 2 * top))
        assert low >= limits.tiny and high.isfinite()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [2, 3, 29, 30, 47, 60])
@pytest.mark.parametrize("kappa", [1.5, 2 - 1e-6, 2 - 1e-15])
def test_many_dimensions_next_to_two(kappa, d, dtype):
    """At the top eigenvector c = 1/lambda_max: there the g are as small as they come."""
    g = layer(kappa=kappa, d=d, dtype=dtype)
    torch.nn.init.zeros_(g.weight)
    with torch.no_grad():
        g.weight.diagonal().copy_(torch.cat([torch.full((d - 1,), -1e9), torch.tensor([1e9])]))
    x = torch.zeros(d, dtype=dtype)
    x[-1] = 3.0
    delta = g.prepared().basis.delta.double()
    # g_d = 1 and the others |2/kappa - 1|, and J is -g on W's eigenvectors, for S1 = S0 there.
    exact = (1 - 2 * delta[-1] / (1 + delta[-1]) + 0 * delta[: d - 1]).log().sum()
    torch.testing.assert_close(g.forward_and_ladj(x)[1].double(), exact, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vectors_below_the_normal_numbers(dtype):
    """Their entries are whole multiples of the least number, and so are these: all that is lost is the rounding of y."""
    g, limits = layer(dtype=dtype), torch.finfo(dtype)
    x = torch.tensor([[3.0, 0, 0, 0], [0, 1, 0, 0], [5, -7, 2, 1], [0, 0, 0, 0]], dtype=dtype) * 2.0**12
    y, ladj = g.forward_and_ladj(x)
    tiny, same = g.forward_and_ladj(x * (limits.tiny * limits.eps))
    torch.testing.assert_close(same[2:], ladj[2:], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(tiny / (limits.tiny * limits.eps), y, rtol=1e-2, atol=4)
    assert same[3] == 0 and bool(same.isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sizes_side_by_side_do_not_disturb_each_other(dtype):
    """One call over the range of the dtype: f(sx) = s f(x), and the determinant does not see s."""
    g, x = layer(dtype=dtype), torch.randn(1, 4, dtype=dtype)
    exponents = torch.arange(-30.0, 31.0, 5.0) if dtype == torch.float32 else torch.arange(-300.0, 301.0, 50.0)
    sizes = 10.0 ** exponents.to(dtype)[:, None]
    y, ladj = g.forward_and_ladj(sizes * x)
    one, number = g.forward_and_ladj(x)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(y / sizes, one.expand_as(y), rtol=0, atol=32 * eps * float(x.norm()))
    torch.testing.assert_close(ladj, number.expand_as(ladj), rtol=0, atol=64 * eps)
