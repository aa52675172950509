"""The scalar equation and the damped loop, against f itself in float64, on random and on adversarial targets."""

import math

import pytest
import torch

from mon_lib.errors import ConvergenceError
from mon_lib.reflections import DampedInverse, solve_secular
from mon_lib.reflections.secular import secular_preimage

F64 = torch.float64
KAPPAS = [1.05, 1.5, 1.9, 1.99, 1.9999, 1.999999]


def generator(seed):
    return torch.Generator().manual_seed(seed)


def spectrum(d, kappa, seed=0, power=1.0):
    """delta = lambda/lambda_min - 1 of d eigenvalues with this condition number (1 where d = 1), in random order."""
    delta = torch.rand(d, generator=generator(seed), dtype=F64) ** power
    delta = delta - delta.min()
    return delta * ((kappa - 1) / delta.max()) if d > 1 else delta


def f(x, eigenvalues):
    """H(Wx)x for diagonal W."""
    u = x * eigenvalues
    return x - 2 * (x * u).sum(-1, keepdim=True) / u.square().sum(-1, keepdim=True) * u


def gap(x, y, delta):
    """||f(x) - y||/||y||, in float64 and at a scale where no square overflows; 0 where x = y = 0."""
    x, y = x.double(), y.double()
    size = y.abs().amax(-1, keepdim=True)
    assert bool((x[(size == 0)[..., 0]] == 0).all())
    x, y = (v / torch.where(size > 0, size, 1) for v in (x, y))
    return torch.where(size[..., 0] > 0, (f(x, 1 + delta.double()) - y).norm(dim=-1) / y.norm(dim=-1), 0.0)


def targets(d, n, seed):
    """Random directions, from equal entries to entries that differ by many powers of ten."""
    g = generator(seed)
    y = torch.randn(n, d, generator=g, dtype=F64)
    return y * 10 ** (-12 * torch.rand(n, 1, generator=g, dtype=F64) * torch.rand(n, d, generator=g, dtype=F64))


@pytest.mark.claim("NEW-SEC")
@pytest.mark.parametrize("kappa", KAPPAS)
def test_no_failure_in_many_random_targets(kappa):
    """Six condition numbers, twenty spectra, a thousand targets each: 120,000."""
    most = 0
    for seed in range(20):
        d = (1, 2, 3, 8, 48)[seed % 5]
        delta = spectrum(d, kappa, seed, power=(0.3, 1.0, 3.0, 8.0)[seed // 5])
        y = targets(d, 1000, seed)
        x, r, steps = secular_preimage(delta, y)
        assert gap(x, y, delta).max() < 1e-14
        low = float((1 - delta.max()) / (1 + delta.max()))  # 2/kappa - 1
        assert bool((r >= low).all() and (r <= 1).all())
        most = max(most, int(steps.max()))
    assert most <= (8 if kappa <= 1.99 else 16)


def adversarial(kappa, d=5):
    """Targets along eigenvectors, without the extreme ones, with tiny shares of them; tiny, huge and zero ones."""
    e = torch.eye(d, dtype=F64)
    middle = e[1:-1].sum(0)
    tiny = 10.0 ** -torch.arange(0, 310, 7, dtype=F64)
    mixed = [e[-1] + share * e[0] for share in tiny] + [e[0] + share * e[-1] for share in tiny] + [middle + s * e[0] for s in tiny]
    mixed += [-e[-1] + 0.3 * middle + share * e[0] for share in tiny]
    y = torch.stack([*e, *-e, middle, e[0] + e[-1], e.sum(0), e[0] * 0, *mixed])
    return torch.cat([y, 1e-300 * y, 1e300 * y, 1e150 * y, 1e-160 * y])


@pytest.mark.claim("NEW-SEC")
@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("repeated", ["distinct", "lowest twice", "highest twice", "two values", "all equal"])
def test_no_failure_in_adversarial_targets(kappa, repeated):
    top = kappa - 1
    delta = {
        "distinct": [0, top / 5, top / 2, top - top / 1e6, top],
        "lowest twice": [0, 0, top / 2, top / 1.1, top],
        "highest twice": [0, top / 3, top / 2, top, top],
        "two values": [0, 0, top, top, top],
        "all equal": [0, 0, 0, 0, 0],
    }[repeated]
    delta, y = torch.tensor(delta, dtype=F64), adversarial(kappa)
    x, _, steps = secular_preimage(delta, y)
    assert gap(x, y, delta).max() < 1e-14
    assert int(steps.max()) <= 16
    along_one = y[:5]  # an eigenvector goes to its negative, and the first lower bound is the root
    torch.testing.assert_close(x[:5], -along_one, rtol=16 * 2.2e-16, atol=0)
    assert int(steps[:5].max()) == 0


@pytest.mark.parametrize("gap_to_two", [1e-9, 1e-12, 4e-16])
def test_up_to_the_last_number_below_two(gap_to_two):
    """The denominators are sums of non-negative numbers, so none vanishes in rounding."""
    kappa = 2 - gap_to_two
    delta = torch.tensor([0, 0.3, 0.9, kappa - 1], dtype=F64)
    y = torch.cat(
        [targets(4, 2000, 1), torch.eye(4, dtype=F64), torch.tensor([[s, 0, 0, 1] for s in 10.0 ** -torch.arange(20)], dtype=F64)]
    )
    x, _, steps = secular_preimage(delta, y)
    assert gap(x, y, delta).max() < 1e-14 and int(steps.max()) <= 35


def test_float32():
    for kappa in (1.5, 1.9):
        delta, y = spectrum(48, kappa, 3), targets(48, 5000, 2)
        exact = secular_preimage(delta, y)[0]
        x = secular_preimage(delta.float(), y.float())[0]
        assert ((x - exact).norm(dim=1) / exact.norm(dim=1)).max() < 1e-5
    huge = torch.tensor([[2e38, 2e38, 1.0], [1e-45, 1e-45, 0.0], [3e38, 0.0, 0.0], [0.0, 0.0, 0.0]])
    delta = torch.tensor([0.0, 0.9, 0.5])
    x = secular_preimage(delta, huge)[0]
    assert bool(torch.isfinite(x).all()) and gap(x[:1], huge[:1], delta).max() < 1e-5
    torch.testing.assert_close(x[2:], -huge[2:], rtol=1e-6, atol=0)


@pytest.mark.claim("NEW-SEC")
def test_the_root_is_c_and_the_only_one_in_the_interval():
    delta = spectrum(6, 1.95, 4)
    eigenvalues, y = 7.0 * (1 + delta), targets(6, 50, 3)
    c, steps = solve_secular(eigenvalues, y)
    assert c.shape == steps.shape == (50,)
    x = y / (1 - 2 * c[:, None] * eigenvalues)
    u = x * eigenvalues
    torch.testing.assert_close(c, (x * u).sum(1) / u.square().sum(1), rtol=1e-12, atol=0)
    grid = torch.linspace(float(1 / eigenvalues.max()), float(1 / eigenvalues.min()), 2001, dtype=F64)
    lengths = (y[:, None] / (1 - 2 * grid[:, None] * eigenvalues)).norm(dim=-1) / y.norm(dim=-1, keepdim=True)
    assert bool((lengths.diff(dim=1) < 0).all())
    assert bool((lengths[:, 0] >= 1).all() and (lengths[:, -1] <= 1).all())
    assert bool((1 / lengths).diff(dim=1).diff(dim=1).max() < 1e-12), "1/||x|| is concave"
    negative = solve_secular(-eigenvalues, y)
    torch.testing.assert_close(negative.c, -c)  # f does not see the sign of W


@pytest.mark.claim("NEW-SEC")
def test_beyond_two_the_interval_holds_a_pole_and_several_roots():
    eigenvalues, y = torch.tensor([1.0, 2.5], dtype=F64), torch.tensor([1e-3, -1.0], dtype=F64)
    grid = torch.linspace(1 / 2.5, 1, 100_001, dtype=F64)
    over = (y / (1 - 2 * grid[:, None] * eigenvalues)).norm(dim=-1) - y.norm()
    signs = over.sign().diff().ne(0).sum()
    assert int(signs) == 3
    with pytest.raises(ValueError, match=r"run from 1 to 2\.5"):
        solve_secular(eigenvalues, y)


def test_the_root_is_outside_the_graph():
    eigenvalues, y = torch.tensor([1.0, 1.5], dtype=F64).requires_grad_(), targets(2, 5, 1).requires_grad_()
    c, steps = solve_secular(eigenvalues, y)
    assert not c.requires_grad and not steps.requires_grad


def test_a_sample_alone_and_in_a_batch_is_the_same():
    delta, y = spectrum(8, 1.99, 1), targets(8, 300, 5)
    x, _, steps = secular_preimage(delta, y)
    for i in (0, 17, 299):
        alone = secular_preimage(delta, y[i : i + 1])
        assert torch.equal(alone[2], steps[i : i + 1])
        torch.testing.assert_close(alone[0], x[i : i + 1], rtol=1e-13, atol=0)
    assert len(steps.unique()) > 2  # they do not take equally many


@pytest.mark.parametrize("shape", [(4,), (0, 4), (2, 3, 4), (4, 3, 2)])
def test_shapes_and_axes(shape):
    dim = shape.index(4)
    delta, y = spectrum(4, 1.8), torch.randn(shape, generator=generator(1), dtype=F64)
    c, steps = solve_secular(1 + delta, y, dim=dim)
    assert c.shape == steps.shape == y.sum(dim).shape
    last = y.movedim(dim, -1)
    torch.testing.assert_close(c, solve_secular(1 + delta, last.contiguous()).c)
    strided = last.repeat_interleave(2, -1)[..., ::2]
    torch.testing.assert_close(solve_secular(1 + delta, strided).c, c)


def test_what_is_refused():
    y, ones = torch.ones(3, 2, dtype=F64), torch.tensor([1.0, 1.5], dtype=F64)
    for eigenvalues, match in (
        (torch.tensor([1.0, 2.0], dtype=F64), "ratio below 2"),
        (torch.tensor([-1.0, 1.5], dtype=F64), "one sign"),
        (torch.tensor([0.0, 0.0], dtype=F64), "one sign"),
        (torch.tensor([1.0, math.nan], dtype=F64), "NaN"),
        (ones[None].expand(2, 2), r"shape \(2, 2\)"),
    ):
        with pytest.raises(ValueError, match=match):
            solve_secular(eigenvalues, y)
    with pytest.raises(ValueError, match="1 NaN or infinite"):
        solve_secular(ones, torch.tensor([1.0, math.inf], dtype=F64))
    with pytest.raises(ValueError, match="vectors of 3"):
        solve_secular(ones, torch.ones(3, dtype=F64))
    with pytest.raises(TypeError, match="float32"):
        solve_secular(ones, y.float())
    with pytest.raises(TypeError, match=r"max_steps = 1\.5"):
        solve_secular(ones, y, max_steps=1.5)
    with pytest.raises(TypeError, match="dim = 'last'"):
        solve_secular(ones, y, dim="last")
    with pytest.raises(ConvergenceError, match="1 targets is not solved after 1 steps"):
        solve_secular(torch.tensor([1.0, 1.999], dtype=F64), torch.tensor([0.01, 1.0], dtype=F64), max_steps=1)


def jacobian(x, eigenvalues):
    return torch.func.vmap(torch.func.jacrev(lambda v: f(v, eigenvalues)))(x)


@pytest.mark.claim("NEW-FB")
@pytest.mark.parametrize("d", [2, 3, 8, 48])
@pytest.mark.parametrize("kappa", [1.0001, 1.2, 1.5, 1.8, 1.99])
def test_the_factor_of_a_damped_step_is_exact(kappa, d):
    """sup over x of ||I + tJ(x)|| is max(1 - tm, tL - 1) for every t, attained at the two extreme eigenvectors."""
    m, lipschitz, best = 2 / kappa - 1, 2 * kappa - 1, kappa / (kappa**2 - kappa + 1)
    eigenvalues = (1 + spectrum(d, kappa, d)).sort().values
    e, g = torch.eye(d, dtype=F64), generator(d)
    pairs = torch.linspace(0, math.pi, 25, dtype=F64)[:, None]
    between = pairs.cos() * e[0] + pairs.sin() * e[-1]  # the proof: the extreme case is in this plane
    x = torch.cat([e[[0, -1]], between, torch.randn(50, d, generator=g, dtype=F64)])
    J = jacobian(x, eigenvalues)
    for t in (0.1 * best, 0.5 * best, best, 1.0, 1.2 * best):
        q = max(1 - t * m, t * lipschitz - 1)
        norms = torch.linalg.matrix_norm(torch.eye(d, dtype=F64) + t * J, ord=2)
        assert norms.max() == pytest.approx(q, abs=1e-12) and norms[:2].max() == pytest.approx(q, abs=1e-12)
    assert DampedInverse(kappa).rate == pytest.approx((kappa**2 - 1) / (kappa**2 - kappa + 1), abs=1e-15)
    assert DampedInverse(kappa).t == best
    # t = 1: the factor 2 (kappa - 1), below one exactly when kappa < 3/2, the paper's condition
    one = torch.linalg.matrix_norm(torch.eye(d, dtype=F64) + J, ord=2).max()
    assert one == pytest.approx(2 * (kappa - 1), abs=1e-12)


@pytest.mark.claim("NEW-FB")
@pytest.mark.parametrize("kappa", [1.2, 1.6, 1.9])
def test_the_loop_has_that_rate_and_its_bound_holds(kappa):
    eigenvalues = torch.tensor([1.0, 0.4 + 0.6 * kappa, kappa], dtype=F64)
    inverse = DampedInverse(kappa, tol=1e-9)
    x = torch.randn(40, 3, generator=generator(1), dtype=F64)
    y = f(x, eigenvalues)
    found, steps = inverse(lambda v: f(v, eigenvalues), y)
    assert ((found - x).norm(dim=1) <= 1e-9 * x.norm(dim=1)).all()
    other, later = x + 0.1, x - 0.3
    moved = [v + inverse.t * (f(v, eigenvalues) - y) for v in (other, later)]
    assert ((moved[0] - moved[1]).norm(dim=1) <= inverse.rate * (other - later).norm(dim=1) * (1 + 1e-12)).all()
    # The rate is reached: next to the top eigenvector an error along the bottom one shrinks by rate, no faster.
    start = torch.tensor([[1e-5, 0.0, 1.0]], dtype=F64)
    target = torch.tensor([[0.0, 0.0, -1.0]], dtype=F64)
    after = start + inverse.t * (f(start, eigenvalues) - target)
    assert float(after[0, 0] / start[0, 0]) == pytest.approx(inverse.rate, rel=1e-8)
    assert int(steps.max()) <= math.log(1e-9 * inverse.m / 6) / math.log(inverse.rate) + 1


def test_the_loop_along_another_axis_alone_and_with_zeros():
    eigenvalues = torch.tensor([1.0, 1.3, 1.7], dtype=F64)
    y = torch.randn(5, 3, generator=generator(2), dtype=F64)
    y[2] = 0
    inverse = DampedInverse(1.7, tol=1e-8)

    def guarded(x):
        return torch.where((x == 0).all(-1, keepdim=True), 0.0, f(x, eigenvalues))

    x, steps = inverse(guarded, y)
    assert bool((x[2] == 0).all()) and steps[2] == 0 and len(steps.unique()) > 2
    columns, counts = inverse(lambda v: guarded(v.T).T, y.T, dim=0)
    torch.testing.assert_close(columns.T, x)
    assert torch.equal(counts, steps)
    alone = inverse(guarded, y[3])
    torch.testing.assert_close(alone.x, x[3])
    assert alone.steps == steps[3]


@pytest.mark.parametrize(
    ("dtype", "scales"),
    [(torch.float32, (1e-37, 1e-20, 1e-10, 1e10, 1e19, 1e38)), (F64, (1e-300, 1e-160, 1e160, 1e300))],
    ids=str,
)
def test_the_bound_holds_at_every_scale(dtype, scales):
    """Also where ||y||^2 overflows or vanishes, and for large and small targets side by side."""
    delta = torch.tensor([0.0, 0.4, 0.7], dtype=F64)
    one = torch.randn(6, 3, generator=generator(3), dtype=F64).clamp(-1.5, 1.5).to(dtype)
    y = torch.cat([scale * one for scale in scales])

    def safe(x):
        size = x.abs().amax(-1, keepdim=True)
        return size * f(x / size, 1 + delta.to(dtype))

    x, steps = DampedInverse(1.7)(safe, y)
    exact = secular_preimage(delta, y.double())[0]
    size = exact.abs().amax(-1, keepdim=True)
    assert ((x.double() - exact) / size).norm(dim=1).div((exact / size).norm(dim=1)).max() < 1e-4
    assert int(steps.min()) > 0


def test_a_tolerance_out_of_reach_is_refused_and_a_stalled_loop_stops():
    eigenvalues, y = torch.tensor([1.0, 1.3, 1.9]), torch.randn(400, 3, generator=generator(5))
    evaluations = 0

    def counted(x):
        nonlocal evaluations
        evaluations += 1
        return f(x, eigenvalues.to(x.dtype))

    with pytest.raises(ValueError, match=r"tol = 1e-09 is out of reach in torch\.float32: .* pass tol of 3\.23e-05 or more, or y"):
        DampedInverse(1.9, tol=1e-9)(counted, y)
    with pytest.raises(ValueError, match=r"out of reach in torch\.float64: .* or more$"):
        DampedInverse(1.9, tol=1e-15)(counted, y.double())
    with pytest.raises(ValueError, match=r"out of reach in torch\.float16"):
        DampedInverse(1.9)(counted, y.half())
    assert evaluations == 0
    # Just above the rounding of f some targets are solved and others are not.
    with pytest.raises(ConvergenceError, match=r"more do not help against rounding in torch\.float32: use float64 or a larger tol"):
        DampedInverse(1.9, tol=2.3e-6)(counted, y)
    assert evaluations < 1500
    assert int(DampedInverse(1.9, tol=3.3e-5)(counted, y).steps.max()) < 1500  # what the message advises


@pytest.mark.parametrize("kappa", [1.0, 1.01, 1.5, 1.9, 1.99])
def test_the_steps_allowed_suffice_for_the_hardest_targets(kappa):
    eigenvalues = torch.tensor([1.0, kappa], dtype=F64)
    shares = 10.0 ** -torch.arange(12, dtype=F64)
    y = torch.stack([shares, -torch.ones_like(shares)], 1)
    for t in (None, 0.1, 1.5 / (2 * kappa - 1)):
        for tol in (1e-2, 1e-6, 10 * 2.3e-16 / (2 / kappa - 1) / min(t or 1.0, 1.0)):
            x = DampedInverse(kappa, t, tol=tol)(lambda v: f(v, eigenvalues), y).x
            assert ((f(x, eigenvalues) - y).norm(dim=1) <= (2 / kappa - 1) * tol * y.norm(dim=1) * (1 + 1e-6) + 1e-15).all()


def test_what_the_loop_refuses():
    for value in ("x", True, None, torch.tensor(1.5)):
        with pytest.raises(TypeError, match=r"kappa = .*; pass 1 <= kappa < 2"):
            DampedInverse(value)
        with pytest.raises(TypeError, match=r"tol = .*; pass a relative error"):
            DampedInverse(1.5, tol=value)
        with pytest.raises(TypeError, match=r"max_steps = .*; pass an integer"):
            DampedInverse(1.5, max_steps=value)
    with pytest.raises(TypeError, match=r"t = 'x' is str; pass 0 < t < 1"):
        DampedInverse(1.5, "x")
    with pytest.raises(TypeError, match=r"max_steps = 1\.5 is float; pass an integer"):
        DampedInverse(1.5, max_steps=1.5)
    with pytest.raises(ValueError, match="max_steps = 0"):
        DampedInverse(1.5, max_steps=0)
    with pytest.raises(TypeError, match="dim = 'last'"):
        DampedInverse(1.5)(lambda x: -x, torch.ones(2), dim="last")
    for kappa in (0.9, 2.0, math.nan):
        with pytest.raises(ValueError, match="kappa"):
            DampedInverse(kappa)
    for t in (0.0, -1.0, 2 / (2 * 1.5 - 1), math.nan):
        with pytest.raises(ValueError, match="does not contract"):
            DampedInverse(1.5, t)
    for options in ({"tol": 0.0}, {"tol": math.inf}, {"tol": math.nan}):
        with pytest.raises(ValueError, match="must be positive"):
            DampedInverse(1.5, **options)
    eigenvalues = torch.tensor([1.0, 2.5], dtype=F64)
    with pytest.raises(ConvergenceError, match="1 of 1 targets are not solved"):
        DampedInverse(1.9, max_steps=5)(lambda x: f(x, eigenvalues), torch.tensor([[0.3, 1.0]], dtype=F64))
    with pytest.raises(ValueError, match="NaN"):
        DampedInverse(1.9)(lambda x: x, torch.tensor([math.nan]))


def test_the_last_step_allowed_counts():
    torch.manual_seed(0)
    values = 1 + 0.9 * torch.rand(12, dtype=torch.float64)
    values[0], values[-1] = 1.0, 1.9
    y = torch.randn(200, 12, dtype=torch.float64)
    steps = solve_secular(values, y).steps
    for most in range(int(steps.min()), int(steps.max()) + 1):
        enough = steps <= most
        assert int(enough.sum()) > 0
        assert torch.equal(solve_secular(values, y[enough], max_steps=most).steps, steps[enough])
        if not bool(enough.all()):
            with pytest.raises(ConvergenceError, match=f"of {int((~enough).sum())} targets"):
                solve_secular(values, y[~enough], max_steps=most)


def test_a_map_that_is_not_finite_is_named():
    with pytest.raises(ValueError, match="f gave a NaN"):
        DampedInverse(1.5)(lambda x: x * math.nan, torch.randn(3, 4, dtype=torch.float64))
