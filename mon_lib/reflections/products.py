"""Products of Householder reflections, H(v_1) ... H(v_k), in blocks of compact WY: matrix products, not k steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from .._numbers import check_size
from ..operators._base import full_precision
from ._checks import check_dtype, check_finite, check_orthogonal, check_vectors, in_working_dtype, working_dtype

__all__ = ["HouseholderProduct"]

BLOCK = 64  # reflections in one block: more costs a larger triangular inverse, fewer costs more steps


class HouseholderProduct(nn.Module):
    """The orthogonal map f(x) = H(v_1) ... H(v_k) x (REF section 1.1).

    A block of reflections with unit vectors in the rows of V is I - V'TV, where T^-1 = triu(VV', 1) + I/2. All T of all
    blocks come from one batched triangular solve, and a block is applied by two matrix products.

    A zero vector is H(0) = I: no reflection. It counts in no determinant and receives no gradient, so it stays one.

    Parameters
    ----------
    d : int
        Dimension.
    k : int
        Number of reflections, at least 0. With k = d and zero vectors among them every orthogonal matrix is such a
        product; d vectors that are all different from zero give only the determinant (-1)^d.
    block : int
        Reflections in one block.
    dtype, device
        Of the parameter.

    Attributes
    ----------
    vectors : Parameter
        Shape ``(k, d)``, drawn from the normal distribution: every direction of a mirror is equally likely. Their
        lengths change no value; a gradient goes with one over the length.

    Raises
    ------
    TypeError, ValueError
        If d, k or block is no integer or too small, or if dtype is not real and floating-point.
    """

    def __init__(self, d: int, k: int, *, block: int = BLOCK, dtype=None, device=None):
        super().__init__()
        self.d, self.k, self.block = check_size("d", d), check_size("k", k, 0), check_size("block", block)
        self.vectors = nn.Parameter(torch.randn(self.k, self.d, dtype=check_dtype(dtype), device=device))

    @classmethod
    def from_orthogonal(cls, U: Tensor, k: int | None = None, **options) -> HouseholderProduct:
        """The reflections whose product is U, as few as there can be: as many as I - U has rank (REF section 1).

        One mirror, of v = U e_i - e_i, for each basis vector that is not in place, the farthest first.

        Parameters
        ----------
        U : Tensor
            Shape ``(d, d)``, orthogonal to the rounding of its dtype.
        k : int, optional
            Number of reflections of the module, d where not given. Those that U does not need are zero vectors.
        **options
            Passed on: ``block``.

        Raises
        ------
        TypeError, ValueError
            If U is not orthogonal, or if it needs more than k reflections.
        """
        U = check_orthogonal("U", U)
        k = U.shape[0] if k is None else check_size("k", k, 0)
        found = _mirrors(U)
        if len(found) > k:
            raise ValueError(f"k = {k} reflections cannot make U, which needs {len(found)}; pass k = {len(found)} or more")
        module = cls(U.shape[0], k, dtype=U.dtype, device=U.device, **options)
        with torch.no_grad():
            module.vectors.zero_()[: len(found)] = found
        return module

    def forward(self, x: Tensor) -> Tensor:
        """f(x), shape ``(..., d)``, in the dtype of x; computed in float32 where x or the parameter is shorter."""
        check_vectors("x", x, self.d)
        return self._prepare(x.numel() // self.d)(x)

    def inverse(self, y: Tensor) -> Tensor:
        """The x with f(x) = y: the transpose, H(v_k) ... H(v_1) y. Shape ``(..., d)``.

        Raises
        ------
        TypeError, ValueError
            If y has another shape or dtype, or is not finite.
        """
        check_finite("y", check_vectors("y", y, self.d))
        return self._prepare(y.numel() // self.d, backwards=True)(y)

    @full_precision
    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """The orthogonal matrix, shape ``(d, d)``, differentiable in the vectors.

        Parameters
        ----------
        dtype : torch.dtype, optional
            In which it is computed and returned, to whose rounding it is orthogonal; that of the vectors where not given.

        Raises
        ------
        TypeError
            If the dtype is not real and floating-point.
        """
        dtype = self.vectors.dtype if check_dtype(dtype) is None else dtype
        return _dense(*self._factors(dtype)).to(dtype)

    def determinant(self) -> int:
        """(-1)^r, where r counts the vectors that are not zero."""
        vectors = check_finite("vectors", self.vectors.detach())
        return -1 if int((vectors != 0).any(-1).sum()) % 2 else 1

    def prepared(self) -> Callable[[Tensor], Tensor]:
        """x -> f(x) with the work that depends on the vectors alone done once; gradients flow to the vectors.

        For the many steps of one recurrent pass. The weights are frozen in it: ask for another after a change.
        """
        return self._prepare(None)

    @full_precision
    def _prepare(self, rows: int | None, backwards: bool = False) -> Callable[[Tensor], Tensor]:
        """f or its inverse as the cheaper of two: the blocks, or the dense matrix where it pays for itself."""
        V, T = self._factors()
        name, d, k, dense = "y" if backwards else "x", self.d, V.shape[0] * V.shape[1], None
        if 2 * k > d and (rows is None or rows * (2 * k - d) > 2 * k * d):
            dense = _dense(V, T) if backwards else _dense(V, T).mT  # the rows of x are multiplied from the right
        else:
            # The rows of the product: x -> x - (x V') T' V, the last block first; T and the order turn in the inverse.
            TV = (T if backwards else T.mT) @ V

        @full_precision
        def apply(x: Tensor) -> Tensor:
            check_vectors(name, x, d)
            wide = in_working_dtype(name, x, self.vectors).reshape(-1, d)
            y = wide @ dense if dense is not None else _apply(V, TV, wide, reverse=not backwards)
            return y.reshape(x.shape).to(x.dtype)

        return apply

    def _factors(self, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """V and T of the blocks, ``(blocks, b, d)`` and ``(blocks, b, b)``; zeros fill the last."""
        vectors = self.vectors.to(working_dtype(dtype or self.vectors.dtype))
        b = max(1, min(self.block, self.k))
        V = pad(_unit(vectors), (0, 0, 0, -self.k % b)).view(-1, b, self.d)
        right = 2.0 * torch.eye(b, dtype=V.dtype, device=V.device).expand(V.shape[0], b, b)
        above = (2.0 * (V @ V.mT)).triu(1)
        T = torch.linalg.solve_triangular(above, right, upper=True, unitriangular=True)
        return V, T

    def extra_repr(self) -> str:
        return f"d={self.d}, k={self.k}"


def _unit(v: Tensor) -> Tensor:
    """Every row over its length, also where the square would overflow or vanish; zero rows stay zero, without gradient."""
    size = v.detach().abs().amax(-1, keepdim=True)
    zero = size == 0
    w = (v / size.masked_fill(zero, 1.0)).masked_fill(zero, 0.0)
    return w * w.square().sum(-1, keepdim=True).masked_fill(zero, 1.0).rsqrt()


def _dense(V: Tensor, T: Tensor) -> Tensor:
    """The product as a matrix: the blocks, applied to the rows of I from the right."""
    return _apply(V, T @ V, torch.eye(V.shape[-1], dtype=V.dtype, device=V.device), reverse=False)


def _apply(V: Tensor, TV: Tensor, x: Tensor, reverse: bool) -> Tensor:
    """The blocks x -> x - (x V') TV one after the other, on rows of x: shape ``(N, d)``."""
    blocks = list(zip(V.unbind(), TV.unbind(), strict=True))
    for v, tv in reversed(blocks) if reverse else blocks:
        x = torch.addmm(x, x @ v.mT, tv, alpha=-1.0)
    return x


def _nearest_orthogonal(U: Tensor, steps: int = 4) -> Tensor:
    """The orthogonal factor of U by Newton's iteration, which squares the fault of U'U = I in every step."""
    for _ in range(steps):
        U = 1.5 * U - 0.5 * U @ (U.mT @ U)
    return U


def _mirrors(U: Tensor) -> Tensor:
    """The vectors v_1, ..., v_r with U = H(v_1) ... H(v_r), shape ``(r, d)``, computed in float64.

    The mirror of v = U e_i - e_i puts e_i in place and moves nothing that U leaves alone, as v is orthogonal to that. The
    i that is farthest from its place comes first: the longest v is the best known. What is within the rounding of U's
    dtype counts as in place, else H(v) would mirror along a rounding error.
    """
    d = U.shape[0]
    eye = torch.eye(d, dtype=torch.float64, device=U.device)
    off = _nearest_orthogonal(U.double()) - eye  # U - I, with unit columns to the last digit
    rounding = 16.0 * d**0.5 * torch.finfo(U.dtype).eps
    found = []
    while len(found) < d:
        # A column of U - I has the length sqrt(-2 u_ii), to half the digits; at the end all of them are needed.
        far, i = (-2.0 * off.diagonal()).max(0)
        if float(far) < 1e-9:
            far, i = off.square().sum(0).max(0)
            if float(far) <= rounding**2:
                break
        v = off[:, i].clone()
        rest = v.square().sum() - v[i].square()
        if float(v[i]) > -1.0:
            v[i] = -rest / (2.0 + v[i])  # what v_i is for a unit column U e_i, without its cancellation
        v = v / v.norm()
        off.addr_(v, v @ off + v, alpha=-2.0)
        found.append(v.to(U.dtype))
    return torch.stack(found) if found else U.new_zeros(0, d)
