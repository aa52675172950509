"""Chapter 18: the printed Newton inverse (the scalar equation and the damped loop are tested with the library)."""

import itertools

import pytest
import torch

from mon_lib.reflections import AuxiliaryReflection

F64 = torch.float64
X = [0.8854429, 0.57390445, 0.26658005, 0.62744915]
ITERATES = [
    [-0.77197534, -0.49936318, -0.5985155, -0.6120473],
    [0.72816867, 0.78074205, -0.02241153, 1.0435152],
    [0.7348436, 0.6478982, 0.14960966, 0.8003925],
    [0.8262452, 0.6155189, 0.2279686, 0.6997254],
    [0.8765415, 0.5831212, 0.2592551, 0.640691],
    [0.8852093, 0.5742159, 0.26631045, 0.6278922],
    [0.88543946, 0.5739097, 0.26658094, 0.62744874],
    [0.88544315, 0.57390547, 0.2665805, 0.6274475],
    [0.885443, 0.57390594, 0.26658088, 0.6274466],
    [0.8854408, 0.57390743, 0.2665809, 0.6274484],
]


def printed_matrix(divisor):
    """I + VV'/(divisor * sigma_max) and x of the test case, or None where the generator draws other numbers."""
    g = torch.Generator().manual_seed(42)
    V, x = torch.zeros(4, 4).uniform_(generator=g), torch.zeros(4).uniform_(generator=g)
    V, x = V.double(), x.double()
    gram = V @ V.T
    W = torch.eye(4, dtype=F64) + gram / (divisor * torch.linalg.matrix_norm(gram, 2))
    return (W, x) if torch.allclose(x, torch.tensor(X, dtype=F64), atol=1e-7) else None


def condition(W):
    values = torch.linalg.eigvalsh(W)
    return float(values[-1] / values[0])


def iterates(W, x, steps):
    f = AuxiliaryReflection(len(W), dtype=F64).requires_grad_(False)
    f.weight.copy_(W)
    y = f(x)
    found = [y]
    for _ in range(steps):
        found.append(found[-1] - torch.linalg.solve(f.jacobian(found[-1]), f(found[-1]) - y))
    return torch.stack(found)


@pytest.mark.claim("REF-A21")
def test_the_printed_iterates():
    """In float64: equal to the float32 of the print up to rounding times the norm of the inverse Jacobian."""
    if (case := printed_matrix(1)) is None:
        pytest.skip("this generator draws other numbers for seed 42")
    W, x = case
    kappa = condition(W)
    assert kappa == pytest.approx(1.9955, abs=5e-5)
    found, printed = iterates(W, x, 9), torch.tensor(ITERATES, dtype=F64)
    gap = (found - printed).abs().amax(1)
    assert gap.max() < 1e-4 and gap[0] < 5e-7 and gap[4:].max() < 1e-5
    assert (found[-1] - x).abs().max() < 1e-13 < (printed[-1] - x).abs().max()
    other = iterates(printed_matrix(2)[0], x, 9)  # the matrix of the text has other iterates
    assert (other - printed).abs().amax(1)[0] > 0.1


@pytest.mark.claim("REF-A21")
def test_which_theorem_covers_the_two_matrices():
    g, covered = torch.Generator().manual_seed(0), set()
    for d in (2, 3, 4, 8):
        for _ in range(50):
            V = torch.rand(d, d, generator=g, dtype=F64) + torch.eye(d, dtype=F64)
            gram = V @ V.T
            sigma = torch.linalg.svdvals(gram)
            text, code = (torch.eye(d, dtype=F64) + gram / (k * sigma[0]) for k in (2, 1))
            assert condition(text) < 1.5 and condition(code) < 2
            assert (condition(code) < 1.5) == bool(sigma[0] < 3 * sigma[-1])
            covered.add(condition(code) < 1.5)
    assert covered == {True, False}


@pytest.mark.claim("REF-A21")
@pytest.mark.parametrize("kappa", [1.2, 1.9, 1.99])
def test_newton_is_quadratic_where_the_jacobian_is_invertible(kappa):
    g = torch.Generator().manual_seed(1)
    W = torch.diag(torch.linspace(1, kappa, 6, dtype=F64))
    for _ in range(20):
        x = torch.randn(6, generator=g, dtype=F64)
        f = AuxiliaryReflection(6, dtype=F64).requires_grad_(False)
        f.weight.copy_(W)
        assert torch.linalg.matrix_norm(torch.linalg.inv(f.jacobian(x)), 2) <= kappa / (2 - kappa) * (1 + 1e-10)
        error = (iterates(W, x, 12) - x).norm(dim=1)
        assert error[-1] < 1e-11 * x.norm()
        late = [(float(a), float(b)) for a, b in itertools.pairwise(error) if 1e-6 < a < 1e-2]
        assert all(b < 50 * kappa / (2 - kappa) * a**2 / float(x.norm()) + 1e-12 for a, b in late)
