"""Orthogonal matrices that are formed from a free one, once a batch: PyTorch's Cayley map and matrix exponential (REF B.1)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils import parametrizations

from .._numbers import check_size
from ..operators._base import full_precision
from ..reflections._checks import check_finite, check_orthogonal, check_vectors, in_working_dtype, working_dtype
from ..reflections.products import _nearest_orthogonal

__all__ = ["Cayley", "MatrixExponential", "draw_uniform"]


def draw_uniform(parameter: Tensor, d: int) -> Tensor:
    """Fill from U(-1/sqrt(d), 1/sqrt(d)) (REF B.1)."""
    return nn.init.uniform_(parameter, -(d**-0.5), d**-0.5)


class _Formed(nn.Module, ABC):
    """x -> Qx with an orthogonal matrix Q that is formed from a free matrix, once for each batch (abstract).

    The map is that of :func:`torch.nn.utils.parametrizations.orthogonal`. It reads the free matrix below its diagonal, so
    about half of the d^2 parameters have no effect. They are drawn from U(-1/sqrt(d), 1/sqrt(d)) (REF B.1).
    """

    def __init__(self, d: int):
        super().__init__()
        self.d = check_size("d", d)
        self.map = self._map(nn.Linear(self.d, self.d, bias=False, device="meta")).parametrizations.weight[0]
        self.weight = nn.Parameter(draw_uniform(torch.empty(self.d, self.d), self.d))

    @staticmethod
    @abstractmethod
    def _map(module: nn.Module) -> nn.Module:
        """PyTorch's parametrisation, registered on a module for its shape alone."""

    @full_precision
    def to_dense(self) -> Tensor:
        """Q, shape ``(d, d)``, in the dtype of the weight; formed in float32 where that is shorter."""
        return self._form().to(self.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Qx for x of shape ``(..., d)``, in the dtype of x; computed in float32 where x or the weight is shorter."""
        return self._prepare("x")(x)

    def inverse(self, y: Tensor) -> Tensor:
        """Q'y for y of shape ``(..., d)``, in the dtype of y.

        Raises
        ------
        TypeError, ValueError
            If y has another shape or dtype, or is not finite.
        """
        return self._prepare("y", backwards=True)(check_finite("y", check_vectors("y", y, self.d)))

    def prepared(self) -> Callable[[Tensor], Tensor]:
        """x -> Qx with Q formed now, for use many times in one forward pass; gradients flow through it."""
        return self._prepare("x")

    @full_precision
    def _form(self) -> Tensor:
        """Q in the dtype in which it is used."""
        return self.map(self.weight.to(working_dtype(self.weight.dtype)))

    def _prepare(self, name: str, backwards: bool = False) -> Callable[[Tensor], Tensor]:
        Q = self._form().mT if backwards else self._form()

        @full_precision
        def apply(x: Tensor) -> Tensor:
            wide = in_working_dtype(name, check_vectors(name, x, self.d), self.weight)
            return linear(wide, Q).to(x.dtype)

        return apply

    @classmethod
    def _with(cls, U: Tensor, A: Tensor, remedy: str):
        """The module of this A, once its map is known to be U.

        An error dA of A moves either map by no more than ||dA||, and storing A makes one of eps ||A||_F / 2. Beyond half
        the digits the map is another one, whatever the reason.
        """
        eps = torch.finfo(U.dtype).eps
        size, distance = float(A.norm()), math.inf
        made = cls(U.shape[0]).to(U)
        with torch.no_grad():
            made.weight.copy_(A.tril(-1))
            if bool(torch.isfinite(made.weight).all()):
                with suppress(torch.linalg.LinAlgError):  # I - A/2 of a huge A can round to a singular matrix
                    distance = float((made.to_dense().double() - U.double()).abs().max())
        allowed = 8.0 * eps * (U.shape[0] ** 0.5 + 1.0) + min(8.0 * eps * size, eps**0.5)
        if not distance <= allowed:
            found = f"the map that was made is {distance:.3g} from it in an entry, and {allowed:.3g} is allowed"
            found = found if math.isfinite(distance) else "no finite weight makes it"
            raise ValueError(f"U is out of reach of {cls.__name__} in {U.dtype}: {found}; {remedy}")
        return made

    def extra_repr(self) -> str:
        return f"d={self.d}"


class Cayley(_Formed):
    """x -> Qx with Q = (I - A/2)^-1 (I + A/2) and A = L - L', L the part of `weight` below its diagonal.

    A rotation without the eigenvalue -1. Forming it takes one LU factorisation and d right-hand sides.

    Parameters
    ----------
    d : int
        Entries of x.

    Raises
    ------
    TypeError, ValueError
        If d is not a positive integer.
    """

    @classmethod
    def from_orthogonal(cls, U: Tensor) -> Cayley:
        """The map x -> Ux: its weight is the lower half of 2(U - I)(U + I)^-1.

        That matrix grows without bound towards a half turn, and its rounding moves the map: by about 4 eps / (pi - angle).

        Raises
        ------
        TypeError, ValueError
            If U, of shape ``(d, d)``, is not orthogonal, or the map that was made is not U: an eigenvalue of U is -1, or
            too near to it for the dtype.
        """
        U = check_orthogonal("U", U)
        wide, eye = _nearest_orthogonal(U.double()), torch.eye(U.shape[0], dtype=torch.float64, device=U.device)
        A, _ = torch.linalg.solve_ex(wide + eye, wide - eye, left=False)  # not finite where U + I is singular
        # Half of A - A' and not one triangle of A: the errors of the solve are large near a half turn, and those that are
        # skew cancel in the map.
        return cls._with(
            U,
            A - A.mT,
            "an eigenvalue -1 has no Cayley transform, and one near it needs more digits: pass U in float64, a rotation "
            "without half turns, or use MatrixExponential.from_orthogonal",
        )

    @staticmethod
    def _map(module: nn.Module) -> nn.Module:
        return parametrizations.orthogonal(module, orthogonal_map="cayley", use_trivialization=False)


class MatrixExponential(_Formed):
    """x -> Qx with Q = exp(A) and A = L - L', L the part of `weight` below its diagonal.

    Any rotation. Its gradient is an exponential of a matrix twice as large.

    Large weights cost digits, as an exponential is squared about log2 ||A|| times. In float32 at d = 100, ||Q'Q - I|| is
    about 2e-5 for weights drawn from U(-1, 1), 2e-4 from U(-100, 100) and 7e-3 from U(-1000, 1000); in float64 it stays
    below 1e-9, so convert the module with ``.double()`` where that matters. It is not done by itself: it takes twice the
    time on a CPU, and many times that on a GPU with few float64 units.

    Parameters
    ----------
    d : int
        Entries of x.

    Raises
    ------
    TypeError, ValueError
        If d is not a positive integer.
    """

    @classmethod
    def from_orthogonal(cls, U: Tensor) -> MatrixExponential:
        """The map x -> Ux: its weight is the lower half of a real logarithm of U, with angles up to pi.

        Raises
        ------
        TypeError, ValueError
            If U, of shape ``(d, d)``, is not orthogonal, or has determinant -1, or the map that was made is not U.
        """
        U = check_orthogonal("U", U)
        wide = _nearest_orthogonal(U.double())
        if float(torch.linalg.det(wide)) < 0.0:
            raise ValueError(
                "U has determinant -1, so an eigenvalue -1 is without a partner and no real logarithm exists; pass a rotation, "
                "for instance with one column of U negated"
            )
        return cls._with(U, _logarithm(wide), "pass U in float64, or use HouseholderProduct.from_orthogonal")

    @staticmethod
    def _map(module: nn.Module) -> nn.Module:
        return parametrizations.orthogonal(module, orthogonal_map="matrix_exp", use_trivialization=False)


def _turning(U: Tensor) -> tuple[Tensor, Tensor]:
    """Angles and orthonormal eigenvectors of a rotation without angles near pi: those of its fourth root, times four.

    The root has angles below pi/4, where the sine has one inverse and a flat one: equal eigenvalues do no harm.
    """
    for _ in range(2):
        P, _, Q = torch.linalg.svd(U + torch.eye(len(U), dtype=U.dtype, device=U.device))
        U = P @ Q  # the root is the orthogonal factor of I + U
    sines, Z = torch.linalg.eigh(-0.5j * (U - U.mT))
    return 4.0 * sines.asin(), Z


def _logarithm(U: Tensor) -> Tensor:
    """A real skew A with exp(A) = U, for a rotation U in float64.

    Angles near pi are those of -U near zero, turned by a half turn. The two kinds are eigenspaces of U + U', parted where
    the cosines leave the widest gap below zero.
    """
    cosines, B = torch.linalg.eigh(0.5 * (U + U.mT))
    below = int((cosines < 0.0).sum())
    edges = torch.cat([cosines.new_tensor([-1.0]), cosines[:below], cosines.new_tensor([1.0])])
    if below < len(U):
        edges[-1] = cosines[below]
    n = int(edges.diff().argmax())
    near, far = B[:, :n], B[:, n:]
    angles, Z = _turning(far.mT @ U @ far)
    A = far @ ((Z * (1j * angles)) @ Z.mH).real @ far.mT
    if n:
        angles, Z = _turning(-near.mT @ U @ near)
        turned = angles > 1e-13  # the others are rounding: exact half turns, of any planes that are left
        Z, angles = Z[:, turned], angles[turned]
        # Planes of pairs a, b with (a + ib) / sqrt 2 in Z. They are known to eps / angle alone, but that is enough once they
        # are orthonormal: a half turn is -I in any of them, and the rest is as small as the angle.
        P, _, Q = torch.linalg.svd(2.0**0.5 * torch.cat([Z.real, Z.imag], 1))
        pairs, rest = P[:, : 2 * len(angles)] @ Q, P[:, 2 * len(angles) :]
        (a, b), half = pairs.chunk(2, 1), rest.shape[1] // 2
        a, b = torch.cat([a, rest[:, :half]], 1), torch.cat([b, rest[:, half : 2 * half]], 1)
        angles = torch.cat([angles, angles.new_zeros(half)]) - math.pi
        block = (a * angles) @ b.mT
        A = A + near @ (block - block.mT) @ near.mT
    return A
