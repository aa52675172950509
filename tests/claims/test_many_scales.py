"""Chapter 11: what tests/operators does not cover of MON-C4, MON-C8 and MON-PC1, from dense matrices and the paper's own."""

import itertools

import pytest
import torch
from torch.nn.functional import conv2d, pad

DOUBLE = torch.float64


def randn(*shape, seed):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def eye(n):
    return torch.eye(n, dtype=DOUBLE)


def least(W):
    """The smallest eigenvalue of the symmetric part of I - W."""
    return float(torch.linalg.eigvalsh(eye(len(W)) - (W + W.T) / 2)[0])


def lower_bidiagonal(sizes, seed):
    """Random blocks on the diagonal and just below it, and the index ranges of the tiers."""
    A, tiers = torch.zeros(sum(sizes), sum(sizes), dtype=DOUBLE), torch.arange(sum(sizes)).split(sizes)
    for i, own in enumerate(tiers):
        for j in {max(i - 1, 0), i}:
            A[own[:, None], tiers[j]] = randn(len(own), len(tiers[j]), seed=seed + 10 * i + j)
    return A, tiers


def operator(A, B, m):
    return (1 - m) * eye(len(A)) - A.T @ A + B - B.T


SIZES = [(3, 2), (5, 3, 2), (2, 4, 4, 1)]


@pytest.mark.claim("MON-C4")
@pytest.mark.parametrize("sizes", SIZES)
def test_bidiagonal_factors_force_the_coupling(sizes):
    """W is block lower bidiagonal for one choice of each B_{i+1,i} only, and then the block is -2 A_{i+1,i+1}'A_{i+1,i}."""
    A, tiers = lower_bidiagonal(sizes, 0)
    B, _ = lower_bidiagonal(sizes, 100)
    pairs = list(itertools.pairwise(tiers))
    free = operator(A, B, 0.4)
    for up, down in pairs:
        assert free[up[:, None], down].abs().max() > 0.1
        B[down[:, None], up] = -A[down[:, None], down].T @ A[down[:, None], up]
    W = operator(A, B, 0.4)
    for i, rows in enumerate(tiers):
        for j, columns in enumerate(tiers):
            block = W[rows[:, None], columns]
            if not 0 <= i - j <= 1:
                torch.testing.assert_close(block, torch.zeros_like(block), rtol=0, atol=1e-13)
    for up, down in pairs:
        expected = -2 * A[down[:, None], down].T @ A[down[:, None], up]
        torch.testing.assert_close(W[down[:, None], up], expected, rtol=0, atol=1e-13)
        B[down[:, None], up] *= 1.01
        assert operator(A, B, 0.4)[up[:, None], down].abs().max() > 1e-3


@pytest.mark.claim("MON-C4")
@pytest.mark.parametrize("up", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_how_much_coupling_given_weights_bear(seed, up):
    """For two tiers and invertible A_22 the limit is 2 sqrt(1 + rho), rho = min |A_11 z|^2/|A_21 z|^2, in either direction."""
    m, A11, A21, A22 = 0.3, randn(4, 4, seed=seed), randn(3, 4, seed=seed + 50), randn(3, 3, seed=seed + 90)

    def W(theta):
        diagonal = (-A11.T @ A11 - A21.T @ A21, -A22.T @ A22)
        coupling = -theta * A22.T @ A21
        return (1 - m) * eye(7) + torch.cat(
            [torch.cat([diagonal[0], up * coupling.T], 1), torch.cat([(1 - up) * coupling, diagonal[1]], 1)]
        )

    half = torch.linalg.inv(torch.linalg.cholesky(A11.T @ A11))
    rho = 1 / float(torch.linalg.eigvalsh(half @ A21.T @ A21 @ half.T)[-1])
    limit = 2 * (1 + rho) ** 0.5
    assert limit > 2
    for sign in (-1, 1):
        assert least(W(sign * limit)) == pytest.approx(m, abs=1e-11)
        assert least(W(sign * (limit + 0.02))) < m - 1e-6
        assert least(W(sign * (limit - 0.02))) > m + 1e-7


def equilibria(G, c):
    """All z = relu(z - Gz + c), by trying every set of active units."""
    out = []
    for active in itertools.product([False, True], repeat=len(c)):
        on, z = torch.tensor(active), torch.zeros(len(c), dtype=DOUBLE)
        if on.any():
            z[on] = torch.linalg.solve(G[on][:, on], c[on])
        if bool((z[on] > 0).all()) and bool(((G @ z - c)[~on] >= 0).all()):
            out.append(z)
    return out


@pytest.mark.claim("MON-C4")
def test_one_way_coupling_keeps_the_equilibrium_and_loses_the_constant():
    """Beyond the limit I - W is not even monotone and the Cayley operator expands, but only a loop costs uniqueness."""
    for seed in range(20):
        G = torch.tril(6 * randn(4, 4, seed=seed), -1) + torch.diag(0.2 + randn(4, seed=seed + 100).square())
        assert least(eye(4) - G) < 0
        assert torch.linalg.matrix_norm(2 * torch.linalg.inv(eye(4) + G) - eye(4), 2) > 1
        assert len(equilibria(G, randn(4, seed=seed + 200))) == 1
    c = 1.3 * torch.tensor([1.2, 1.3], dtype=DOUBLE)
    counts = {theta: len(equilibria(torch.tensor([[1.3, theta / 2], [theta / 2, 1.3]], dtype=DOUBLE), c)) for theta in (-4, 2, 4)}
    assert counts == {-4: 0, 2: 1, 4: 3}


@pytest.mark.claim("MON-C8")
@pytest.mark.parametrize("sizes", SIZES)
def test_the_printed_sign_solves_another_network(sizes):
    """With the diagonal blocks as printed Peaceman-Rachford converges to the equilibrium for W_ii' in place of W_ii."""
    m, alpha = 0.4, 0.6
    A, tiers = lower_bidiagonal(sizes, 0)
    B = torch.block_diag(*(randn(n, n, seed=n) for n in sizes))
    for up, down in itertools.pairwise(tiers):
        B[down[:, None], up] = -A[down[:, None], down].T @ A[down[:, None], up]
    W = operator(A, B, m)
    other, V, printed = W.clone(), (1 + alpha) * eye(len(W)) - alpha * W, (1 + alpha) * eye(len(W)) - alpha * W
    gram = A.T @ A
    for own in tiers:
        block = (own[:, None], own)
        skew = B[block] - B[block].T
        torch.testing.assert_close(V[block], (1 + alpha * m) * eye(len(own)) + alpha * (gram[block] - skew))
        printed[block] = (1 + alpha * m) * eye(len(own)) + alpha * (gram[block] + skew)
        other[block] = W[block].T
    c = randn(len(W), seed=7).abs()

    def residuals(V):
        inverse, u = torch.linalg.inv(V), torch.zeros_like(c)
        for _ in range(3000):
            reflected = 2 * torch.relu(u) - u
            u = 2 * inverse @ (reflected + alpha * c) - reflected
        z = torch.relu(u)
        return [float((z - torch.relu(M @ z + c)).norm()) for M in (W, other)]

    right, wrong = residuals(V), residuals(printed)
    assert right[0] < 1e-10 and wrong[1] < 1e-10
    assert right[1] > 1e-3 and wrong[0] > 1e-3


# Proposition C1 with the paper's own matrices.


def shuffle(a, b):
    """S_{a,b} of C11."""
    return torch.cat([eye(a * b)[j::b] for j in range(b)])


def transform(s):
    """The unitary transform of s x s pixels."""
    k = torch.arange(s, dtype=DOUBLE)
    line = torch.polar(torch.full((s, s), s**-0.5, dtype=DOUBLE), -2 * torch.pi * torch.outer(k, k) / s)
    return torch.kron(line, line)


def stacked(s, r):
    """J and S of C10."""
    J = torch.kron(torch.ones(r * r, 1, dtype=DOUBLE), eye((s // r) ** 2))
    return J, torch.kron(eye(r), shuffle(s // r, s))


def convolution(kernel, s, stride=1):
    inputs, c = kernel.shape[1], kernel.shape[-1] // 2
    unit = eye(inputs * s * s).reshape(-1, inputs, s, s)
    return conv2d(pad(unit, (c, c, c, c), mode="circular"), kernel, stride=stride).flatten(1).T


@pytest.mark.claim("MON-PC1")
@pytest.mark.parametrize(("s", "r"), [(4, 2), (6, 2), (6, 3), (9, 3)])
def test_the_matrices_of_the_stride(s, r):
    """F U'U F* = L (x) L = S'JJ'S/r^2 with entries 1/r in L; the last line of C24 has S and S' exchanged."""
    F, (J, S) = transform(s), stacked(s, r)
    U = eye(s * s).reshape(s, s, -1)[::r, ::r].flatten(0, 1).to(F.dtype)
    found = F @ U.T @ U @ F.mH
    k = torch.arange(s)
    L = (k[:, None] % (s // r) == k % (s // r)).to(F.dtype) / r
    torch.testing.assert_close(found, torch.kron(L, L), rtol=0, atol=1e-13)
    torch.testing.assert_close(found, (S.T @ J @ J.T @ S / r**2).to(F.dtype), rtol=0, atol=1e-13)
    assert (found - S @ J @ J.T @ S.T / r**2).abs().max() > 0.1
    assert (found - torch.kron(L, L) / s**2).abs().max() > 0.1
    fold = torch.kron(eye(s // r).repeat(1, r), eye(s // r).repeat(1, r)).to(F.dtype)
    torch.testing.assert_close(transform(s // r) @ U @ F.mH, fold / r, rtol=0, atol=1e-13)


@pytest.mark.claim("MON-PC1")
@pytest.mark.parametrize(("s", "r", "n1", "n2"), [(4, 2, 1, 1), (4, 2, 2, 2), (6, 3, 1, 3), (6, 2, 2, 1)])
def test_the_proposition_in_the_papers_letters(s, r, n1, n2):
    """It holds with r^2 and coupled channels, and fails with s^2 r^2, with S for S', or with one K repeated."""
    kernels = [randn(n1, n1, 3, 3, seed=seed) for seed in (0, 1)]
    X, Y = (convolution(kernel, s) for kernel in kernels)
    A, kernel = eye(n1 * s * s) + X.T @ X + Y - Y.T, randn(n2, n1, 3, 3, seed=2)
    B = convolution(kernel, s, r)
    F1, F2 = (torch.kron(torch.eye(n, dtype=torch.complex128), transform(s)) for n in (n1, n2))
    D_A, D_B = F1 @ A.to(F1.dtype) @ F1.mH, F2 @ convolution(kernel, s).to(F1.dtype) @ F1.mH
    exact, inverse, (J, S) = torch.linalg.inv(A + B.T @ B), torch.linalg.inv(D_A), stacked(s, r)

    def gap(SJ, constant, repeated=False):
        stack = torch.kron(eye(n2), SJ).to(F1.dtype)
        M = constant * torch.eye(stack.shape[1], dtype=F1.dtype) + stack.T @ D_B @ inverse @ D_B.mH @ stack
        if repeated:
            size = SJ.shape[1]
            M = torch.kron(torch.eye(n2, dtype=F1.dtype), M[:size, :size])
        K = stack @ torch.linalg.inv(M) @ stack.T
        found = F1.mH @ (inverse - inverse @ D_B.mH @ K @ D_B @ inverse) @ F1
        return float((found - exact).norm() / exact.norm())

    assert gap(S.T @ J, r**2) < 1e-13
    assert gap(S.T @ J, s**2 * r**2) > 1e-2
    assert gap(S @ J, r**2) > 1e-2
    assert (gap(S.T @ J, r**2, repeated=True) < 1e-13) if n2 == 1 else (gap(S.T @ J, r**2, repeated=True) > 1e-2)
