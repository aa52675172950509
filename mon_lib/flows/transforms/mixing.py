"""What mixes the channels of every pixel: a free matrix, an orthogonal one, or a reflection (REF section 3.3 and appendix B.3).

A rounded matrix moves all pixels alike, and such errors add up from step to step: in float32 they were most of what a flow loses
on the way there and back. Those that have an inverse therefore form their matrices in float64, and apply them in float64 in
`inverse`, and forwards in evaluation mode. Training, to which rounding is nothing, stays in the dtype of the images.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from ..._numbers import check_size
from ...reflections import AuxiliaryReflection, HouseholderProduct, InvertibleReflection, Newton, PreparedInvertible
from ...reflections._checks import check_finite, in_working_dtype
from ._base import Transform, check_images
from ._refined import RefinedInverse

__all__ = ["AuxiliaryMixing", "FreeMixing", "HouseholderMixing", "InvertibleMixing", "random_orthogonal"]


def random_orthogonal(d: int) -> Tensor:
    """An orthogonal matrix ``(d, d)``, uniform over all of them, from PyTorch's random numbers.

    The Q of a QR decomposition alone is not uniform: LAPACK makes it a product of d - 1 reflections, so its determinant is
    always (-1)^(d - 1). Turning columns until the diagonal of R is positive mends that.
    """
    Q, R = torch.linalg.qr(torch.randn(check_size("d", d), d, dtype=torch.float64))
    return (Q * R.diagonal().sign()).to(torch.get_default_dtype())


def _widened(name: str, x: Tensor, parameter: Tensor, exact: bool) -> Tensor:
    """x in float64, or, where not exact, in the dtype that the parameter computes in.

    Raises
    ------
    TypeError
        If the dtypes of the two do not fit.
    """
    wide = in_working_dtype(name, x, parameter)
    return wide.double() if exact else wide


def _mix(matrix: Tensor, x: Tensor) -> Tensor:
    """The matrix ``(channels, channels)``, rounded to the dtype of x, times the channels of each pixel."""
    return conv2d(x, matrix[:, :, None, None].to(x.dtype))


def _fixed(product: HouseholderProduct) -> HouseholderProduct:
    """The product with its vectors as a buffer: no parameter, which a later ``requires_grad_()`` of the model would set free."""
    vectors = product.vectors.detach()
    del product.vectors
    product.register_buffer("vectors", vectors)
    return product


def _pixels(x: Tensor) -> int:
    return x.shape[2] * x.shape[3]


class FreeMixing(Transform):
    """A free invertible matrix, as P L (U + diag(s)) (Kingma and Dhariwal 2018, section 3.2).

    P is a fixed permutation, L lower and U upper triangular, L with ones and U with zeros on the diagonal. The signs of s are
    fixed and its logarithm is learned, so the matrix is invertible at every value of the parameters, and its log-determinant is
    a sum. It starts as a random orthogonal matrix.

    Parameters
    ----------
    channels : int

    Raises
    ------
    TypeError, ValueError
        If channels is no positive integer; on use, if x has other channels.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.channels = check_size("channels", channels)
        P, L, U = torch.linalg.lu(random_orthogonal(self.channels))
        self.register_buffer("permutation", P)
        self.register_buffer("sign", U.diagonal().sign())
        self.lower = nn.Parameter(L.tril(-1))
        self.upper = nn.Parameter(U.triu(1))
        self.log_scale = nn.Parameter(U.diagonal().abs().log())

    def _factors(self) -> tuple[Tensor, Tensor, Tensor]:
        """P, L and U + diag(s) in float64."""
        P, L, U = (factor.double() for factor in (self.permutation, self.lower, self.upper))
        eye = torch.eye(self.channels, dtype=L.dtype, device=L.device)
        return P, L.tril(-1) + eye, U.triu(1) + torch.diag(self.sign * self.log_scale.double().exp())

    def to_dense(self) -> Tensor:
        """The matrix ``(channels, channels)``."""
        P, L, U = self._factors()
        return (P @ L @ U).to(self.lower.dtype)

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_images(x, self.channels)
        P, L, U = self._factors()
        y = _mix(P @ L @ U, _widened("x", x, self.lower, not self.training))
        return y.to(x.dtype), (_pixels(x) * self.log_scale.sum()).expand(len(x))

    def inverse(self, y: Tensor) -> Tensor:
        check_images(y, self.channels, "y")
        P, L, U = self._factors()
        # The inverse matrix, solved for once: there are far more pixels than channels.
        columns = torch.linalg.solve_triangular(L, P.mT, upper=False, unitriangular=True)
        columns = torch.linalg.solve_triangular(U, columns, upper=True)
        return _mix(columns, _widened("y", y, self.lower, True)).to(y.dtype)


class HouseholderMixing(Transform):
    """A product of reflections: an orthogonal matrix, whose log-determinant is zero (Hoogeboom et al. 2019).

    Parameters
    ----------
    channels : int
    k : int, optional
        Number of reflections, default as many as channels, which reaches the orthogonal matrices of one determinant.

    Raises
    ------
    TypeError, ValueError
        If a number is no positive integer; on use, if x has other channels.
    """

    def __init__(self, channels: int, k: int | None = None):
        super().__init__()
        self.channels = check_size("channels", channels)
        self.product = HouseholderProduct(self.channels, self.channels if k is None else check_size("k", k))

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_images(x, self.channels)
        wide = _widened("x", x, self.product.vectors, not self.training)
        return _mix(self.product.to_dense(torch.float64), wide).to(x.dtype), x.new_zeros(len(x))

    def inverse(self, y: Tensor) -> Tensor:
        check_images(y, self.channels, "y")
        wide = _widened("y", y, self.product.vectors, True)
        return _mix(self.product.to_dense(torch.float64).mT, wide).to(y.dtype)


class InvertibleMixing(Transform):
    """y = H(WQx) Qx in every pixel, with W symmetric, definite and of condition number below kappa < 2, and Q fixed.

    By NEW-K2 this is a bijection at every value of the parameters. The fixed orthogonal Q replaces the permutation that a
    symmetric W near the identity cannot learn (REF appendix B.3).

    Parameters
    ----------
    channels : int
    kappa : float
        Bound on the condition number, 1 < kappa < 2. The paper's condition is 3/2.

    Raises
    ------
    TypeError, ValueError
        If channels is no positive integer or kappa is out of its range; on use, if x has other channels.
    """

    def __init__(self, channels: int, kappa: float = 1.9):
        super().__init__()
        self.channels = check_size("channels", channels)
        self.reflection = InvertibleReflection(self.channels, kappa, dim=1)
        # As a product of reflections, which is orthogonal to the rounding of whatever dtype the module is moved to.
        self.rotation = _fixed(HouseholderProduct.from_orthogonal(random_orthogonal(self.channels)))

    def _prepared(self, exact: bool) -> PreparedInvertible:
        """x -> H(WQx) Qx for x in float64, or, where not exact, for x in the dtype that the parameter computes in."""
        weight = self.reflection.weight
        weight = weight.double() if exact else weight
        return PreparedInvertible(weight, self.reflection.kappa, self.reflection.dim, self.rotation.to_dense(torch.float64))

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_images(x, self.channels)
        exact = not self.training
        y, ladj = self._prepared(exact).forward_and_ladj(_widened("x", x, self.reflection.weight, exact))
        return y.to(x.dtype), ladj.flatten(1).sum(1).to(x.dtype)

    def inverse(self, y: Tensor) -> Tensor:
        check_images(y, self.channels, "y")
        weight, prepared = self.reflection.weight, self._prepared(True)
        wide = _widened("y", y, weight, True)
        if y.dtype == torch.float64:
            return prepared.inverse(wide)
        return RefinedInverse.apply(check_finite("y", wide), weight.double(), prepared.basis, prepared.dim)[0].to(y.dtype)


class AuxiliaryMixing(Transform):
    """y = H(Wx)x in every pixel with a free W: the paper's best variant, and no bijection (NEW-DENS).

    It starts as the paper's does, with W = I - Q and the Q of a QR decomposition (REF appendix B.3). For an even number of
    channels det Q is -1, W is singular, and as soon as it is not, almost every target has three preimages; what
    `forward_and_ladj` returns is then not the logarithm of a density's change. `inverse` therefore refuses, unless a method was
    passed that finds one preimage of several.

    Parameters
    ----------
    channels : int
    preimage : Newton, optional
        How `inverse` finds a preimage: one of several, and not always the one that the image came from.

    Raises
    ------
    TypeError, ValueError
        If channels is no positive integer or preimage no `Newton`; on use, if x has other channels.
    NotImplementedError
        From `inverse`, without a method.
    """

    def __init__(self, channels: int, preimage: Newton | None = None):
        super().__init__()
        self.channels = check_size("channels", channels)
        if preimage is not None and not isinstance(preimage, Newton):
            raise TypeError(f"preimage = {preimage!r} is no method; pass reflections.Newton(), or nothing for no inverse")
        self.preimage = preimage
        self.reflection = AuxiliaryReflection.from_orthogonal(torch.linalg.qr(torch.randn(self.channels, self.channels)).Q)

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_images(x, self.channels)
        y, ladj = self.reflection.forward_and_ladj(x.movedim(1, -1))
        return y.movedim(-1, 1), ladj.flatten(1).sum(1)

    def inverse(self, y: Tensor) -> Tensor:
        check_images(y, self.channels, "y")
        if self.preimage is None:
            raise NotImplementedError(
                "H(Wx)x with a free W is not one to one, so it has no inverse: use InvertibleMixing, or accept one preimage of "
                "several with AuxiliaryMixing(channels, preimage=reflections.Newton())"
            )
        return self.reflection.inverse(y.movedim(1, -1), self.preimage).movedim(-1, 1)
