"""The benchmark of flows: every rival is the same flow but for its mixing, and the goal is judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # the benchmarks are not installed

from benchmarks import flows  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from mon_lib.flows.transforms import InvertibleMixing  # noqa: E402


def test_models_differ_in_their_mixings_only_and_those_of_reflections_use_their_bound():
    images = torch.randint(256, (4, 3, 4, 4), generator=torch.Generator().manual_seed(0)).float() / 255
    made = flows.models(flows.DRY["book"]["shape"], images)
    assert 1.7 < flows.reflections(12, 1.9).reflection.condition() <= 1.9
    couplings = {name: model.flow.levels[0][3].state_dict() for name, model in made.items()}
    assert len(made) == 4 and sum(isinstance(model.flow.levels[0][2], InvertibleMixing) for model in made.values()) == 2
    for name, model in made.items():
        assert bool(model.flow.levels[0][1].initialised), name
        assert {key: value.shape for key, value in couplings[name].items()} == {
            key: value.shape for key, value in couplings[flows.FREE].items()
        }
        assert torch.equal(model.reconstruct(images), images), name


def test_a_step_of_training_moves_the_weights():
    images = torch.randint(256, (4, 3, 4, 4), generator=torch.Generator().manual_seed(0)).float() / 255
    model = flows.models(flows.DRY["book"]["shape"], images)[flows.OURS]
    weight = model.flow.levels[0][2].reflection.weight
    before = weight.detach().clone()
    flows.train_step(model, torch.optim.SGD(model.parameters(), 0.1), images)
    assert not torch.equal(before, weight)


def test_the_table_is_made_and_the_topic_is_known(monkeypatch, capsys):
    monkeypatch.setattr(flows, "QUICK", flows.DRY)
    assert main(["flows", "--quick", "--device", "cpu"]) == 0
    out = flows.run(quick=True, device=torch.device("cpu"))
    json.dumps(out, allow_nan=False)
    assert set(out["book"]["ratios"]) == {"training", "sampling", "reconstructing"}
    assert all(row[flows.FREE] == 1.0 and row[flows.OURS] > 0 for row in out["book"]["ratios"].values())
    assert sum(line.startswith("goal ") for line in capsys.readouterr().out.splitlines()) == 2
