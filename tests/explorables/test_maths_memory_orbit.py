"""What MemoryOrbit computes in the browser, against mon_lib and autograd in float64."""

import math

import pytest
import torch
from torch.func import jacrev

from mon_lib.reflections import AuxiliaryReflection, householder

F64 = torch.float64
SETTINGS = [(0.7, 0.0), (0.7, 0.1), (0.3, -0.3), (2.5, 0.8)]


def tensor(values):
    return torch.tensor(values, dtype=F64)


def maps(theta, s):
    """The four transitions from the library."""
    U = tensor([[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]])
    f = AuxiliaryReflection.from_orthogonal(U)
    with torch.no_grad():
        f.weight[0, 0] += s
    M, v = torch.eye(2, dtype=F64) - f.weight.detach(), tensor([0.6, 0.8])
    return {"auxiliary": f, "orthogonal": lambda x: U @ x, "free": lambda x: M @ x, "mirror": lambda x: householder(v, x)}


@pytest.mark.parametrize("method", ["auxiliary", "orthogonal", "free", "mirror"])
@pytest.mark.parametrize(("theta", "s"), SETTINGS)
def test_states_and_turns(node, method, theta, s):
    start = [1.0, 0.2]
    found = node("memory_orbit.maths.js", f"orbit('{method}', {theta}, {s}, {start}, 12)")
    f, h = maps(theta, s)[method], tensor(start)
    turn = tensor([-start[1], start[0]]) / h.norm()
    for state, size in zip(found["states"], found["turns"], strict=True):
        torch.testing.assert_close(tensor(state), h.detach(), rtol=1e-9, atol=1e-9)
        assert size == pytest.approx(float(turn.norm()), rel=1e-6)
        turn, h = jacrev(f)(h).detach() @ turn, f(h).detach()


def test_where_the_reflection_is_undefined_it_is_what_the_library_says(node):
    W = [[0.0, 0.0], [0.0, 1.0]]
    found = node("memory_orbit.maths.js", f"auxiliary({W}, [1, 0])")
    f = AuxiliaryReflection(2).double()
    with torch.no_grad():
        f.weight.copy_(tensor(W))
    x = tensor([1.0, 0.0])
    torch.testing.assert_close(tensor(found["y"]), f(x).detach())
    torch.testing.assert_close(tensor(found["J"]), jacrev(f)(x).detach())
