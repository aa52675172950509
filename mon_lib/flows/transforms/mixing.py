"""What mixes the channels of every pixel: a free matrix, an orthogonal one, or a reflection (REF section 3.3 and appendix B.3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from ...reflections import AuxiliaryReflection, HouseholderProduct, InvertibleReflection, Newton
from ...reflections._checks import check_size
from ._base import Transform, check_images

__all__ = ["AuxiliaryMixing", "FreeMixing", "HouseholderMixing", "InvertibleMixing", "random_orthogonal"]


def random_orthogonal(d: int) -> Tensor:
    """An orthogonal matrix ``(d, d)``, uniform over all of them, from PyTorch's random numbers.

    The Q of a QR decomposition alone is not uniform: LAPACK makes it a product of d - 1 reflections, so its determinant is
    always (-1)^(d - 1). Turning columns until the diagonal of R is positive mends that.
    """
    Q, R = torch.linalg.qr(torch.randn(check_size("d", d), d, dtype=torch.float64))
    return (Q * R.diagonal().sign()).to(torch.get_default_dtype())


def _mix(matrix: Tensor, x: Tensor) -> Tensor:
    """The matrix times the channels of each pixel."""
    return conv2d(x, matrix[:, :, None, None])


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

    def _factors(self) -> tuple[Tensor, Tensor]:
        eye = torch.eye(self.channels, dtype=self.lower.dtype, device=self.lower.device)
        return self.lower.tril(-1) + eye, self.upper.triu(1) + torch.diag(self.sign * self.log_scale.exp())

    def to_dense(self) -> Tensor:
        """The matrix ``(channels, channels)``."""
        L, U = self._factors()
        return self.permutation @ L @ U

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_images(x, self.channels)
        return _mix(self.to_dense(), x), (_pixels(x) * self.log_scale.sum()).expand(len(x))

    def inverse(self, y: Tensor) -> Tensor:
        check_images(y, self.channels, "y")
        L, U = self._factors()
        columns = self.permutation.T @ y.flatten(2)
        columns = torch.linalg.solve_triangular(L, columns, upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(U, columns, upper=True).reshape(y.shape)


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
        self.product = HouseholderProduct(self.channels, self.channels if k is None else k)

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_images(x, self.channels)
        return _mix(self.product.to_dense(), x), x.new_zeros(len(x))

    def inverse(self, y: Tensor) -> Tensor:
        check_images(y, self.channels, "y")
        return _mix(self.product.to_dense().T, y)


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
        self.rotation = HouseholderProduct.from_orthogonal(random_orthogonal(self.channels)).requires_grad_(False)

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check_images(x, self.channels)
        y, ladj = self.reflection.prepared(self.rotation.to_dense()).forward_and_ladj(x)
        return y, ladj.flatten(1).sum(1)

    def inverse(self, y: Tensor) -> Tensor:
        check_images(y, self.channels, "y")
        return self.reflection.prepared(self.rotation.to_dense()).inverse(y)


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
        If channels is no positive integer; on use, if x has other channels.
    NotImplementedError
        From `inverse`, without a method.
    """

    def __init__(self, channels: int, preimage: Newton | None = None):
        super().__init__()
        self.channels = check_size("channels", channels)
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
