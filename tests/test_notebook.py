"""The first cell of a chapter: profile, seed, style."""

import matplotlib
import pytest
import torch

from mon_lib import figures, notebook


@pytest.fixture
def without_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize(("name", "expected"), [("smoke", 1), ("cpu", 2)])
def test_variable_chooses_the_profile(monkeypatch, name, expected):
    monkeypatch.setenv(notebook.VARIABLE, name)
    profile = notebook.setup()
    assert profile.name == name
    assert profile.device == torch.device("cpu")
    assert profile.pick(smoke=1, cpu=2, gpu=3) == expected


@pytest.mark.parametrize("cuda", [True, False])
@pytest.mark.parametrize("value", [None, ""])
def test_default_follows_the_machine(monkeypatch, cuda, value):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.delenv(notebook.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(notebook.VARIABLE, value)
    assert notebook.profile_name() == ("gpu" if cuda else "cpu")


def test_unknown_profile_is_refused_by_name(monkeypatch):
    monkeypatch.setenv(notebook.VARIABLE, "quick")
    with pytest.raises(ValueError, match="'quick' is not a profile: set it to one of smoke, cpu, gpu"):
        notebook.setup()


def test_gpu_without_cuda_is_refused(monkeypatch, without_cuda):
    monkeypatch.setenv(notebook.VARIABLE, "gpu")
    with pytest.raises(RuntimeError, match="sees no CUDA device"):
        notebook.profile_name()


def test_gpu_value_falls_back_to_cpu():
    gpu = notebook.Profile("gpu", torch.device("cuda"))
    assert gpu.pick(smoke=1, cpu=2) == 2
    assert gpu.pick(smoke=1, cpu=2, gpu=0) == 0


def test_setup_seeds_torch(monkeypatch):
    monkeypatch.setenv(notebook.VARIABLE, "smoke")
    notebook.setup(seed=3)
    first = torch.rand(4)
    torch.rand(1)
    notebook.setup(seed=3)
    assert torch.equal(first, torch.rand(4))
    notebook.setup(seed=4)
    assert not torch.equal(first, torch.rand(4))


def test_setup_applies_the_style(monkeypatch):
    monkeypatch.setenv(notebook.VARIABLE, "smoke")
    with matplotlib.rc_context():
        figures.use_style()
        wanted = dict(matplotlib.rcParams)
        matplotlib.rcdefaults()
        assert any(matplotlib.rcParams[key] != value for key, value in wanted.items() if key.startswith("axes"))
        notebook.setup()
        changed = [key for key, value in wanted.items() if key.startswith("axes") and matplotlib.rcParams[key] != value]
    assert not changed
