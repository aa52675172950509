"""One reflection, chosen by its input: f(x) = H(Wx)x, its Jacobian, its determinant and its inverse."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .._numbers import check_size
from ..operators._base import full_precision
from ._checks import check_dtype, check_finite, check_orthogonal, check_vectors, in_working_dtype, working_dtype
from ._frozen import FrozenReflection
from ._newton import Implicit, Newton
from ._preimages import directions, preimages

__all__ = ["AuxiliaryReflection", "Newton"]

TINY = torch.finfo(torch.float64).tiny


class AuxiliaryReflection(nn.Module):
    """f(x) = H(Wx)x = x - 2c Wx with c = x'Wx / ||Wx||^2 (REF section 1.1), at the price of one linear layer.

    f keeps lengths, f(sx) = s f(x), and wherever Wx is not zero the scale of W does not matter. For W = I - U with an
    orthogonal U it is Ux (REF Theorem 1), also where Ux = x and Wx = 0: there c, a quotient of zeros, is taken as 1/2, so
    that f(x) = x - Wx and J = I - W. For any other W with Wx = 0 this is the convention H(0) = I. It has to know the scale:
    2(I - U) is the same map, but where Wx = 0 its J would be that of I - 2cW with c = 1/4.

    In floating point Wx is not zero where it should be but a rounding error, and H of that a random mirror. So c = 1/2
    wherever ||Wx|| <= 4 eps ||W||_F ||x||. The rule sees sizes only: an exact Wx of that size is taken for noise too, as with
    W = diag(1, 2^-22) and x = (0, 1) in float32. There f(x) = x - Wx. If ||W||_F is above 2 sqrt(d), the largest norm of an
    I - U, then c = sqrt(d)/||W||_F in place of 1/2, so that f still keeps lengths to about 8 sqrt(d) eps. Why 4: rounding
    W and x to the dtype moves Wx by up to eps ||W||_F ||x||, half from each, and a sum of d products by up to d/2 as
    much, so for d up to 6 nothing larger can be noise. For large d the errors of a sum average out and the total stays
    below one such unit, so 4 is a reserve. The count assumes full float32 products, torch's default, and that the square
    of an entry of W stays in the range of the dtype; the rule is off elsewhere.

    Derivatives are those of reverse mode, any number of times; forward mode is not implemented.

    Between the two regimes a Wx of relative size r = ||Wx||/||x|| has few digits: f is off by about eps/r then, and the
    Jacobian by eps/r^2. Any finite x and W will do as long as Wx is neither infinite nor below the smallest normal number.

    Parameters
    ----------
    d : int
        Dimension.
    dtype, device
        Of the parameter.

    Attributes
    ----------
    weight : Parameter
        W, shape ``(d, d)``, drawn from U(-1/sqrt d, 1/sqrt d) (REF B.1).

    Raises
    ------
    TypeError, ValueError
        If d is not a positive integer, or the dtype is not real and floating-point.

    Examples
    --------
    >>> U, x = torch.tensor([[0.0, -1.0], [1.0, 0.0]]), torch.randn(5, 2)
    >>> f = AuxiliaryReflection.from_orthogonal(U)
    >>> bool(torch.allclose(f(x), x @ U.T, atol=1e-6))
    True
    """

    def __init__(self, d: int, *, dtype=None, device=None):
        super().__init__()
        self.d = check_size("d", d)
        self.weight = nn.Parameter(torch.empty(self.d, self.d, dtype=check_dtype(dtype), device=device))
        nn.init.uniform_(self.weight, -1 / math.sqrt(self.d), 1 / math.sqrt(self.d))

    @classmethod
    def from_orthogonal(cls, U: Tensor) -> AuxiliaryReflection:
        """The reflection with f(x) = Ux for every x: W = I - U (REF Theorem 1).

        Parameters
        ----------
        U : Tensor
            Shape ``(d, d)``, orthogonal to the rounding of its dtype.

        Raises
        ------
        TypeError, ValueError
            If U is no orthogonal matrix.
        """
        U = check_orthogonal("U", U)
        f = cls(U.shape[0], dtype=U.dtype, device=U.device)
        with torch.no_grad():
            f.weight.copy_(torch.eye(f.d, dtype=U.dtype, device=U.device) - U)
        return f

    def forward(self, x: Tensor) -> Tensor:
        """f(x), shape ``(..., d)``, in the dtype of x; computed in float32 where x or W is shorter. NaN passes on."""
        return self._apply_frozen(FrozenReflection.of(self.weight), x)

    def prepared(self) -> Callable[[Tensor], Tensor]:
        """x -> f(x) with the work that depends on W alone done once; gradients flow to the weight.

        For the many steps of one recurrent pass. It holds a copy of W as it is now: ask for another after a change.
        """
        f = FrozenReflection.of(self.weight.clone()).for_many()
        return lambda x: self._apply_frozen(f, x)

    @full_precision
    def _apply_frozen(self, f: FrozenReflection, x: Tensor) -> Tensor:
        y = f(self._rows("x", x))
        return y if y.shape == x.shape and y.dtype == x.dtype else y.view(x.shape).to(x.dtype)

    @full_precision
    def jacobian(self, x: Tensor) -> Tensor:
        """J = H(Wx)A - 2 Wx x'W / ||Wx||^2 with A = I - 2cW (REF Theorem 3), and A where Wx = 0 (c = 1/2 for an I - U).

        Parameters
        ----------
        x : Tensor
            Shape ``(..., d)``.

        Returns
        -------
        Tensor
            Shape ``(..., d, d)``, row i the gradient of entry i of f. Differentiable.
        """
        rows = self._rows("x", x)
        return FrozenReflection.of(self.weight).jacobian(rows).view(*x.shape, self.d).to(x.dtype)

    @full_precision
    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f(x) and log|det J| at x, from one LU factorisation of J for a sample.

        REF Lemma 1 divides by a singular A, and its simplified form -det(A) x'A^-1 Wx/(x'Wx) by x'Wx, where det J is
        nothing special; J has no quotient but 1/||Wx||, and its factorisation costs what that of A does. For symmetric W
        with a bounded condition number `InvertibleReflection` needs O(d) and no factorisation.

        Parameters
        ----------
        x : Tensor
            Shape ``(..., d)``. At x = 0, where f has no derivative, J is that of `jacobian` where Wx = 0.

        Returns
        -------
        tuple of Tensor
            Shapes ``(..., d)`` and ``(...)``; -inf where J is singular.
        """
        y, J = FrozenReflection.of(self.weight).value_and_jacobian(self._rows("x", x))
        ladj = torch.linalg.slogdet(J).logabsdet
        return y.view(x.shape).to(x.dtype), ladj.view(x.shape[:-1]).to(x.dtype)

    @full_precision
    def inverse(self, y: Tensor, method: Newton = Newton()) -> Tensor:  # noqa: B008 (frozen)
        """One x with f(x) = y, by Newton's method (REF A.2.1), in float64 whatever the dtype.

        f need not be injective, and then this is one preimage among several, and a small residual says nothing about
        the others: see `preimages`, and `InvertibleReflection` for a reflection that has exactly one.

        Parameters
        ----------
        y : Tensor
            Shape ``(..., d)``.
        method : Newton
            With another tolerance or more steps.

        Returns
        -------
        Tensor
            Shape ``(..., d)``, differentiable once in y and W by the implicit derivative J^-1; a second derivative raises
            NotImplementedError. Where J is singular and a gradient arrives, the gradients are NaN.

        Raises
        ------
        ConvergenceError
            If none was found for some samples, whose rows it names; if W is invertible there is one.
        TypeError
            If method is no Newton object.
        ValueError
            If y or W is not finite or y has the wrong shape.
        """
        if not isinstance(method, Newton):
            raise TypeError(f"method = {method!r} is no Newton object; pass Newton(), for instance Newton(tol=1e-6)")
        rows = check_finite("y", self._rows("y", y)).double()
        f = FrozenReflection.of(self.weight, torch.float64)
        check_finite("weight", f.W)
        outside = f.in_range()
        with torch.no_grad():
            x = method.solve(outside, rows.detach(), torch.finfo(working_dtype(y.dtype)).eps)
        if torch.is_grad_enabled() and (rows.requires_grad or f.W.requires_grad):
            x = Implicit.apply(f(x) - rows, x, outside.W, outside.noise)
        return x.view(y.shape).to(y.dtype)

    @torch.no_grad()
    @full_precision
    def preimages(self, y: Tensor) -> list[Tensor]:
        """All x with f(x) = y, from one eigenproblem of size 2d + 1 for each sample, in float64 whatever the dtype.

        Parameters
        ----------
        y : Tensor
            Shape ``(..., d)``.

        Returns
        -------
        list of Tensor
            One for each sample, in the order of ``y.reshape(-1, d)``: shape ``(count, d)``. For invertible W the count is odd
            for almost every y, since f(-x) = -f(x) has odd degree on the sphere (Borsuk). Each has a residual of at most
            sqrt(eps) ||y|| after it was rounded to the dtype of y; f is taken in float64, with what W calls noise.

            Near the null space of W a rounding of x turns f(x) by about eps ||W|| ||x||/||Wx||. Preimages that do not
            survive the rounding are left out, and f jumps where Wx becomes noise: in float32 there may be none there, or one
            that is exact only to 16 sqrt(d) eps ||y||. f(x) in float32 has that error of its own: compare in float64.

        Raises
        ------
        ValueError
            If y or W is not finite or y has the wrong shape, or if a sample has infinitely many preimages.
        """
        rows = check_finite("y", self._rows("y", y)).double()
        f = FrozenReflection.of(self.weight, torch.float64)
        check_finite("weight", f.W)
        f, found = f.in_range(), []
        rough = 16.0 * math.sqrt(self.d) * torch.finfo(working_dtype(y.dtype)).eps  # as in Newton
        for row, x in zip(rows, preimages(f, rows, rough=rough), strict=True):
            x = x.to(y.dtype)
            unit, length = directions(torch.cat([row[None], f(x.double())]))
            gaps = torch.linalg.vector_norm(unit[1:] * (length[1:] / length[0].clamp_min(TINY)) - unit[0], dim=1)
            found.append(x[gaps <= torch.finfo(y.dtype).eps ** 0.5])
        return found

    def _rows(self, name: str, x: Tensor) -> Tensor:
        """The vectors as rows, in the dtype of the computation."""
        check_vectors(name, x, self.d)
        wide = in_working_dtype(name, x, self.weight)
        return wide if wide.ndim == 2 else wide.reshape(-1, self.d)

    def extra_repr(self) -> str:
        return f"d={self.d}"
