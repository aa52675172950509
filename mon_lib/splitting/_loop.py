"""The loop that every solver runs in, over as many samples at a time as stay in a processor's cache."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ..certificates import norm, rounding_allowance
from ..operators._parts import samples_per_part
from ._problem import Problem, Solution, Status

__all__ = ["solve_in_parts"]

PATIENCE = 25  # checks without a new lowest bound, close to rounding, before a sample is given up


def solve_in_parts(solver, problem: Problem, z0: Tensor) -> Solution:
    """Solve a batch, on a processor a few samples at a time.

    Every sample stands alone, so the parts change nothing but the memory they work in: all the passes of a step then find
    the state in the processor's cache, and a part whose samples are all done stops.
    """
    batch, size = len(z0), samples_per_part(z0)
    if batch <= size:
        return repeat(solver, problem, solver.iteration(problem, z0))
    z, parts = torch.empty_like(z0), []
    for start in range(0, batch, size):
        rows = slice(start, start + size)
        part = problem.part(rows)
        solution = repeat(solver, part, solver.iteration(part, z0[rows]))
        z[rows] = solution.z
        parts.append(replace(solution, z=z[rows]))
    checks = max(len(part.residuals) for part in parts)
    joined = {name: torch.cat([getattr(part, name) for part in parts]) for name in ("sample_steps", "converged", "error_bound")}
    return Solution(
        z=z,
        steps=max(part.steps for part in parts),
        # A part that is done keeps its last bound.
        residuals=torch.cat([torch.cat([r, r[-1:].expand(checks - len(r), -1)]) for r in (part.residuals for part in parts)], 1),
        status=worst([part.status for part in parts]),
        alpha=problem.alpha,
        solver=parts[0].solver,
        **joined,
    )


def worst(statuses: list[Status]) -> Status:
    """The worst of several ends."""
    return max(statuses, key=list(Status).index)


def repeat(solver, problem: Problem, iteration) -> Solution:
    """Repeat until every sample is certified; each sample is judged by its own numbers alone."""
    bias, m, lipschitz = problem.bias, problem.operator.m, problem.lipschitz
    eps = torch.finfo(bias.dtype).eps
    check_every = solver.check_every or (1 if bias.device.type == "cpu" else 4)
    n, tiny = bias.shape[0], torch.finfo(bias.dtype).tiny
    size = norm
    if bias.numel():
        # A state this small has squares that underflow: its norm, and the bound on its error, would silently be zero.
        largest = bias.flatten(1).abs().amax(1)
        if bool(((largest > 0) & (largest < tiny**0.5 / eps)).any()):
            size = partial(norm, scaled=True)
    bias_norm = size(bias)
    open_ = torch.ones(n, dtype=torch.bool, device=bias.device)
    converged, overflowed, rounded = torch.zeros_like(open_), torch.zeros_like(open_), torch.zeros_like(open_)
    steps = torch.zeros(n, dtype=torch.long, device=bias.device)
    z_out, bound_out, history, k = None, torch.zeros_like(bias_norm), [], 0
    lowest, standing = torch.full_like(bias_norm, math.inf), torch.zeros_like(steps)
    while k < solver.max_steps:
        burst = min(check_every, solver.max_steps - k)
        for _ in range(burst):
            z, e, factor = iteration.advance()
        k += burst
        z_norm, certificate = size(z), factor * size(e)
        slack = rounding_allowance(z_norm, bias_norm, problem.alpha, m, lipschitz, eps)
        bound, target = certificate + slack, problem.target(solver.tol, z_norm)
        history.append((bound, z_norm))
        quiet = (bound > target) & (certificate > 16.0 * slack)  # far from done and from rounding; false for NaN
        last = k >= solver.max_steps or n == 0
        if not last and not bool((open_ & ~quiet).any()):
            continue
        # The allowance is first-order: rounding settles within a few of it, and there the bound stops falling.
        at_rounding = certificate <= 4.0 * slack
        standing = torch.where(bound < (1.0 - 8.0 * eps) * lowest, 0, standing + 1)
        lowest = torch.minimum(lowest, bound)
        zero = (z_norm <= eps**0.5 * bias_norm / lipschitz) & at_rounding
        finite = torch.isfinite(bound) & torch.isfinite(z_norm)
        done = finite & ((bound <= target) | zero)  # inf <= inf is true: an overflow must not pass for convergence
        settled = (certificate <= 16.0 * slack) & (standing >= PATIENCE)
        stuck = finite & ~done & ((at_rounding & (slack > target)) | settled)
        write = open_ if last else open_ & (done | stuck | ~finite)
        converged, overflowed, rounded = converged | (write & done), overflowed | (write & ~finite), rounded | (write & stuck)
        steps = torch.where(write, k, steps)
        bound_out = torch.where(write, bound, bound_out)
        z_out = z if z_out is None else torch.where(write.reshape(-1, *[1] * (z.ndim - 1)), z, z_out)
        open_ = open_ & ~write
        if not bool(open_.any()):
            break
    residuals = torch.stack([bound for bound, _ in history]) / torch.stack([size for _, size in history]).clamp_min(tiny)
    status = Status.CONVERGED
    unfinished = ~(converged | overflowed | rounded)
    for flags, worse in ((rounded, Status.ROUNDING), (unfinished, Status.MAX_STEPS), (overflowed, Status.DIVERGED)):
        if bool(flags.any()):
            status = worse
    slowest, name = int(steps.max()) if n else 0, type(solver).__name__
    return Solution(z_out, slowest, steps, residuals, converged, status, bound_out, problem.alpha, name)
