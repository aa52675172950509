"""Real multiplications that torch carries out, counted from the shapes of its calls."""

from __future__ import annotations

import math

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Multiplications", "WithSolves", "price"]


FACTORS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "linalg_inv_ex": (0, 0)}


def price(name: str, args: tuple, out) -> int | float:
    """Of matrix products, inverses, convolutions and fast transforms; all else is pointwise and free. A complex one counts four."""
    if name == "convolution":
        return out.numel() * args[1][0].numel()
    if name == "convolution_backward":  # for the input and for the kernel; the mask says which
        return sum(args[-1][:2]) * args[0].numel() * args[2][0].numel()
    if name in ("_fft_r2c", "_fft_c2r"):
        real = args[0] if name == "_fft_r2c" else out
        return real.numel() * math.log2(math.prod(real.shape[-2:]))
    if name not in FACTORS:
        return 0
    left, right = (args[i] for i in FACTORS[name])
    return left.numel() * right.shape[-1] * (4 if left.is_complex() else 1)


class Multiplications(TorchDispatchMode):
    """Counts into `total` while it is entered."""

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        out = op(*args, **(kwargs or {}))
        self.total += price(op.overloadpacket.__name__, args, out)
        return out


class WithSolves(Multiplications):
    """Counts linear systems too: d^3/3 for a factorisation, d^2 for a right-hand side, half of that if triangular."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(op, types, args, kwargs)
        name = op.overloadpacket.__name__
        if name == "_linalg_solve_ex":
            d = args[0].shape[-1]
            self.total += args[0].numel() * d / 3 + d * args[1].numel()
        elif name == "linalg_lu_solve":
            self.total += args[2].shape[-2] * args[2].numel()
        elif name == "linalg_solve_triangular":
            self.total += args[0].shape[-1] * args[1].numel() / 2
        return out
