"""The small linear algebra of the explorables against torch."""

import json

import pytest
import torch

from mon_lib import operators

F64 = torch.float64


@pytest.fixture
def A():
    return torch.randn(5, 5, generator=torch.Generator().manual_seed(3), dtype=F64)


def test_inverse_norm_and_products(node, A):
    a = json.dumps(A.tolist())
    inverse, size, product, resolvent = node(
        "_linalg.js", f"[inverse({a}), spectralNorm({a}), matmul({a}, transpose({a})), resolvent({a}, 0.3)]"
    )
    torch.testing.assert_close(torch.tensor(inverse, dtype=F64), torch.linalg.inv(A))
    torch.testing.assert_close(torch.tensor(product, dtype=F64), A @ A.T)
    torch.testing.assert_close(torch.tensor(resolvent, dtype=F64), torch.linalg.inv(torch.eye(5, dtype=F64) + 0.3 * A))
    assert size == pytest.approx(float(torch.linalg.matrix_norm(A, 2)), rel=1e-12)


def test_symmetric_eigenvalues(node, A):
    S = A + A.T
    found = node("_linalg.js", f"symmetricEigen({json.dumps(S.tolist())})")
    values, vectors = (torch.tensor(found[k], dtype=F64) for k in ("values", "vectors"))
    torch.testing.assert_close(values.sort().values, torch.linalg.eigvalsh(S))
    torch.testing.assert_close(vectors @ S, values[:, None] * vectors)
    torch.testing.assert_close(vectors @ vectors.T, torch.eye(5, dtype=F64))


@pytest.mark.parametrize("seed", range(4))
def test_spectral_radius(node, seed):
    M = torch.randn(6, 6, generator=torch.Generator().manual_seed(seed), dtype=F64)
    expected = float(torch.linalg.eigvals(M).abs().max())
    assert node("_linalg.js", f"spectralRadius({json.dumps(M.tolist())})") == pytest.approx(expected, rel=1e-4)


def test_spectral_radius_of_zero_and_of_a_nilpotent_matrix(node):
    assert node("_linalg.js", "[spectralRadius([[0, 0], [0, 0]]), spectralRadius([[0, 1], [0, 0]])]") == [0, 0]


def test_weights_are_those_of_the_dense_operator(node):
    W = operators.Dense(4, m=0.3, dtype=F64)
    arguments = json.dumps([0.3, W.g.item(), W.h.item(), W.A.tolist(), W.B.tolist()])
    found = node("_linalg.js", f"weights(...{arguments})")
    torch.testing.assert_close(torch.tensor(found, dtype=F64), W.to_dense().detach())
