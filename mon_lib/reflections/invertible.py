"""f(x) = H(Wx)x with W symmetric, definite and of condition number below 2 at every value of its parameter: invertible (NEW-K2)."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn

from .._numbers import check_number, check_size
from ..operators._base import full_precision
from ._checks import check_axis, check_dtype, check_finite, check_vectors, in_working_dtype, working_dtype
from ._eigenbasis import Basis, Inverse, Spectrum
from ._layout import rotate
from ._log_det import ForwardLogDet
from .householder import householder

__all__ = ["InvertibleReflection", "PreparedInvertible"]


class InvertibleReflection(nn.Module):
    """One auxiliary reflection f(x) = H(Wx)x that has an inverse, by construction.

    W = h(B) with B the symmetric part of the parameter and h(b) = (1 + kappa)/2 + (kappa - 1)/2 b/sqrt(1 + b^2), applied to
    eigenvalues: smooth, between 1 and kappa, and every such W is reached; B = 0 is a multiple of I, where f(x) = -x.
    The paper asks for condition number 3/2 (REF Theorem 2); 2 is where it stops (ledger NEW-K2). The scale of W does not matter.

    Inverse and log-determinant cost O(d) a vector beyond one product with the eigenbasis (ledger NEW-SEC, NEW-LADJ). A call
    decomposes B once; `prepared` keeps that for many calls.

    Differentiable once, in reverse mode: second derivatives raise NotImplementedError, but for those of a gradient of `forward`
    in x, which are right. The state dict holds kappa too, without which the weight says nothing.

    Parameters
    ----------
    d : int
        Length of a vector.
    kappa : float
        Bound on the condition number, 1 < kappa < 2.
    dim : int
        The axis of the vectors: -1, or 1 for images with channels first.
    dtype, device
        Of the parameter.

    Attributes
    ----------
    weight : Parameter
        Shape ``(d, d)``; only its symmetric part matters. Starts uniform between -1/sqrt(d) and 1/sqrt(d).

    Raises
    ------
    TypeError, ValueError
        If d is no positive integer, kappa no number between 1 and 2, dim no integer or dtype not real and floating-point; on
        loading, if the state dict is that of another kappa.

    Examples
    --------
    >>> g = InvertibleReflection(3, kappa=1.9)
    >>> x = torch.randn(5, 3)
    >>> bool(torch.allclose(g.inverse(g(x)), x, atol=1e-4))
    True
    """

    def __init__(self, d: int, kappa: float = 1.9, dim: int = -1, *, dtype=None, device=None):
        super().__init__()
        self.d, self.kappa, self.dim = check_size("d", d), _check_kappa(kappa), check_axis(dim)
        bound = 1.0 / math.sqrt(self.d)
        self.weight = nn.Parameter(torch.empty(self.d, self.d, dtype=check_dtype(dtype), device=device).uniform_(-bound, bound))

    @classmethod
    def from_matrix(cls, W: Tensor, kappa: float = 1.9, dim: int = -1) -> InvertibleReflection:
        """The module for a given W, up to its scale, which f does not see.

        Parameters
        ----------
        W : Tensor
            Shape ``(d, d)``, symmetric, positive or negative definite, condition number below kappa.
        kappa, dim
            As above.

        Raises
        ------
        TypeError, ValueError
            If W is not symmetric or not definite, or if its condition number is not below kappa, or so close to it that the
            parameter of its dtype does not hold W.
        """
        kappa = _check_kappa(kappa)
        W = check_finite("W", check_vectors("W", W).detach())
        if W.ndim != 2 or W.shape[0] != W.shape[1]:
            raise ValueError(f"W has shape {tuple(W.shape)}; pass a square matrix, (d, d)")
        gap, size = float((W - W.mT).abs().max()), float(W.abs().max())
        if gap > 8 * torch.finfo(W.dtype).eps * size:
            raise ValueError(f"W is not symmetric: W - W' has an entry {gap:.3g}; pass (W + W')/2 if that is what is meant")
        values, Q = torch.linalg.eigh(W.double() / (size or 1.0))
        values, Q = (values, Q) if float(values[0]) > 0 else (-values.flip(0), Q.flip(1))
        if not float(values[0]) > 0 or not float(values[-1] / values[0]) < kappa:
            raise ValueError(
                f"the eigenvalues of W, up to a common sign, run from {float(values[0]) * size:.6g} to "
                f"{float(values[-1]) * size:.6g}; they must have one sign and a ratio below kappa = {kappa}"
            )
        # Between 1 and kappa with equal ratios to both ends.
        values = values * math.sqrt(kappa) / (values[0] * values[-1]).sqrt()
        sine = (2 * values - (1 + kappa)) / (kappa - 1)
        module = cls(W.shape[0], kappa, dim, dtype=W.dtype, device=W.device)
        with torch.no_grad():
            module.weight.copy_((Q * (sine / (1 - sine.square()).sqrt())) @ Q.mT)
            # Near the ends of the range the parameter is large, and its rounding moves the other eigenvalues.
            gap = float((module.to_dense().double() - (Q * values) @ Q.mT).abs().max() / values[-1])
        allowed = 1024 * math.sqrt(module.d) * torch.finfo(W.dtype).eps
        if not gap <= allowed:
            raise ValueError(
                f"W has a condition number so close to kappa = {kappa} that its entries would be off by {gap:.3g} of the largest "
                f"eigenvalue, and at most {allowed:.3g} is let pass; pass a larger kappa, or W in float64"
            )
        return module

    def prepared(self, rotation: Tensor | None = None) -> PreparedInvertible:
        """The map with its eigenvalues and eigenvectors computed once; gradients flow to the parameter.

        The weights are frozen in it: ask for another after a change.

        Parameters
        ----------
        rotation : Tensor, optional
            A fixed orthogonal R, shape ``(d, d)``: the map is then x -> f(Rx), for the price of f. That it is orthogonal is
            not checked, and no gradient flows to it.

        Raises
        ------
        TypeError, ValueError
            If rotation is no real floating-point tensor of that shape.
        """
        return PreparedInvertible(self.weight, self.kappa, self.dim, rotation)

    def forward(self, x: Tensor) -> Tensor:
        """f(x), in the shape and dtype of x: ``(..., d)``, or d along axis ``dim``. Computed in float32 where x is shorter.

        Differentiable in the parameter once; a gradient in x is differentiable again, in x and in the parameter.
        """
        return self.prepared()(x)

    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f(x) and log|det J(x)|, the latter of the shape of x without axis ``dim``; 0 where x = 0. Differentiable once."""
        return self.prepared().forward_and_ladj(x)

    def inverse(self, y: Tensor) -> Tensor:
        """The one x with f(x) = y, in the shape and dtype of y; differentiable in y and the parameter, once.

        Raises
        ------
        TypeError, ValueError
            If y has another shape or dtype, or is not finite.
        """
        return self.prepared().inverse(y)

    def inverse_and_ladj(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The inverse, and the log|det| of the inverse's Jacobian at y. Differentiable once."""
        return self.prepared().inverse_and_ladj(y)

    def to_dense(self) -> Tensor:
        """W, shape ``(d, d)``, differentiable in the parameter, once."""
        return self.prepared().W.to(self.weight.dtype)

    def condition(self) -> float:
        """The condition number of W, at most `kappa`."""
        return min(1.0 + float(self.prepared().basis.delta.max()), self.kappa)  # rounding in float32 may pass it

    def get_extra_state(self) -> Tensor:
        """kappa, for the state dict: a tensor, as what goes through state dicts expects."""
        return torch.tensor(self.kappa, dtype=torch.float64, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        """Raise ValueError if the state dict is that of another kappa."""
        # State dicts are averaged, or converted as a whole, which rounds kappa.
        found, rounding = float(state), torch.finfo(state.dtype).eps if isinstance(state, Tensor) else 0.0
        if not abs(found - self.kappa) <= max(rounding, 1e-12):
            raise ValueError(
                f"the state dict is that of kappa = {found}, the module has kappa = {self.kappa}, and the same weight "
                f"means another W; load it into InvertibleReflection({self.d}, kappa={found})"
            )

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, *rest) -> None:
        key = f"{prefix}_extra_state"
        if key in state_dict:
            self.set_extra_state(state_dict[key])  # before the weight is overwritten
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, *rest)
        if key in missing_keys:  # state dicts from before kappa was in them
            missing_keys.remove(key)

    def extra_repr(self) -> str:
        return f"d={self.d}, kappa={self.kappa}" + (f", dim={self.dim}" if self.dim != -1 else "")


class PreparedInvertible:
    """An `InvertibleReflection` at today's weights, after a fixed rotation: a callable x -> f(Rx) with its other methods.

    Derivatives are those of the module: second ones for gradients of f(Rx) in x only.

    Attributes
    ----------
    basis : Basis
        The eigenbasis of W, outside the graph.
    """

    @full_precision
    def __init__(self, weight: Tensor, kappa: float, dim: int, rotation: Tensor | None = None):
        dtype = working_dtype(weight.dtype)
        if rotation is not None:
            rotation = check_vectors("rotation", rotation).detach()
            if rotation.shape != weight.shape:
                raise ValueError(f"rotation has shape {tuple(rotation.shape)}; pass an orthogonal matrix, {tuple(weight.shape)}")
        with torch.no_grad():  # in float64: d is small, and the basis is used for many vectors
            wide = check_finite("weight", weight).double()
            b, Q = torch.linalg.eigh(0.5 * (wide + wide.mT))
            theta = b.atan()
            self._values = 0.5 * (1.0 + kappa) + 0.5 * (kappa - 1.0) * theta.sin()
            smallest = float(self._values[0])
            delta = ((self._values - smallest) / smallest).clamp_(max=kappa - 1.0)
            # The largest delta below 1 of a shorter format keeps the bracket away from the pole.
            delta = delta.to(dtype).clamp_(max=1.0 - torch.finfo(dtype).eps)
            inner = Q if rotation is None else rotation.mT.double() @ Q
        self.basis = Basis(Q.to(dtype), inner.to(dtype), delta, smallest, theta, kappa)
        self.d, self.dim, self._weight, self._rotation = weight.shape[0], dim, weight, rotation

    def __getstate__(self) -> dict:
        # The cached W is a result within a graph, which cannot be copied; it is made again on use.
        return {name: value for name, value in self.__dict__.items() if name != "W"}

    @functools.cached_property
    @full_precision
    def W(self) -> Tensor:
        """Shape ``(d, d)``, in the graph of the parameter, differentiable once."""
        return Spectrum.apply(self._weight, self._values.to(self.basis.Q.dtype), self.basis)

    def _widen(self, name: str, x: Tensor) -> Tensor:
        return in_working_dtype(name, check_vectors(name, x, self.d, self.dim), self._weight)

    @full_precision
    def __call__(self, x: Tensor) -> Tensor:
        """f(Rx)."""
        wide = self._widen("x", x)
        if self._rotation is not None:
            wide = rotate(wide, self._rotation.mT.to(wide.dtype), self.dim)
        u = rotate(wide, self.W, self.dim)
        if self.dim == -1:
            return householder(u, wide).to(x.dtype)
        return householder(u.movedim(self.dim, -1), wide.movedim(self.dim, -1)).movedim(-1, self.dim).to(x.dtype)

    @full_precision
    def forward_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f(Rx) and its log|det J|, both from the coordinates in the eigenbasis; differentiable once."""
        y, ladj, *_ = ForwardLogDet.apply(self._widen("x", x), self._weight, self.basis, self.dim)
        return y.to(x.dtype), ladj.to(x.dtype)

    @full_precision
    def inverse(self, y: Tensor) -> Tensor:
        """The x with f(Rx) = y; differentiable once."""
        wide = check_finite("y", self._widen("y", y))
        return Inverse.apply(wide, self._weight, self.basis, self.dim)[0].to(y.dtype)

    @full_precision
    def inverse_and_ladj(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The inverse, and the log|det| of its Jacobian; differentiable once."""
        wide = check_finite("y", self._widen("y", y))
        x = Inverse.apply(wide, self._weight, self.basis, self.dim)[0]
        return x.to(y.dtype), -ForwardLogDet.apply(x, self._weight, self.basis, self.dim)[1].to(y.dtype)


def _check_kappa(kappa: float) -> float:
    """kappa as a float, between 1 and 2."""
    if not 1.0 < check_number("kappa", kappa, "1 < kappa < 2") < 2.0:
        raise ValueError(
            f"kappa = {kappa!r} is out of range; pass 1 < kappa < 2. From 2 on f can have several preimages, "
            "and AuxiliaryReflection, which promises no inverse, is the class for that"
        )
    return float(kappa)
