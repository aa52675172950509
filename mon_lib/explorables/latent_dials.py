"""What the two halves of a flow's latent vector say about an image."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import traitlets

from ._base import Explorable

__all__ = ["LatentDials"]

FACTORS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


class LatentDials(Explorable):
    """Scale the coarse and the fine half of latent vectors, and see the images that the flow makes of them.

    At one and one a patch comes back exactly if the flow's inverse is one; at zero and zero all latent vectors are the same,
    and so are all images. Between them lies what is called the temperature of a sample (ledger REF-33).

    Parameters
    ----------
    images : (6, 6, n, 3, height, width)
        Values in [0, 1]: for each of `FACTORS` of the coarse half, and then of the fine half, one image for each latent vector.
        At most 8 images and 32 pixels a side.
    originals : (k, 3, height, width)
        The patches that the first k latent vectors were made of; the others were drawn.
    labels : sequence of str
        A name for each image.
    coarse, fine : float
        What is shown first.

    Raises
    ------
    ValueError
        If the shapes disagree, if a value is out of range, or if there is too much for one page.
    """

    images = traitlets.List(traitlets.Unicode()).tag(sync=True)
    originals = traitlets.List(traitlets.Unicode()).tag(sync=True)
    size = traitlets.List(traitlets.Int(), minlen=2, maxlen=2, default_value=[16, 16]).tag(sync=True)
    labels = traitlets.List(traitlets.Unicode()).tag(sync=True)
    coarse = traitlets.Float(0.8).tag(sync=True)
    fine = traitlets.Float(0.4).tag(sync=True)

    FACTORS = FACTORS

    def __init__(self, images: Any, originals: Any, labels: Sequence[str], *, coarse: float = 0.8, fine: float = 0.4) -> None:
        images, originals = _bytes("images", images), _bytes("originals", originals)
        n, count, shape = len(labels), len(FACTORS), images.shape[3:]
        if images.ndim != 6 or images.shape[:4] != (count, count, n, 3) or originals.shape[1:] != shape or len(originals) > n:
            raise ValueError(
                f"images {images.shape}, originals {originals.shape} and {n} labels do not belong together: pass images "
                f"({count}, {count}, n, 3, height, width), originals (k, 3, height, width) with k up to n, and n labels"
            )
        if n > 8 or max(shape[1:]) > 32:
            raise ValueError(f"{n} images of {shape[1:]} are too much for one page: at most 8, of 32 x 32")
        super().__init__(
            images=[_text(images[:, :, k]) for k in range(n)],
            originals=[_text(image) for image in originals],
            size=list(shape[1:]),
            labels=list(labels),
            coarse=coarse,
            fine=fine,
        )


def _bytes(name: str, values: Any) -> np.ndarray:
    """Values in [0, 1] as whole numbers from 0 to 255."""
    values = np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values, dtype=float)
    if not (values.size and np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
        raise ValueError(f"{name} must be values from 0 to 1, at least one")
    return np.rint(255 * values).astype(np.uint8)


def _text(pixels: np.ndarray) -> str:
    """Bytes (..., 3, height, width) with the colours last, in base64."""
    return base64.b64encode(np.ascontiguousarray(np.moveaxis(pixels, -3, -1)).tobytes()).decode("ascii")
