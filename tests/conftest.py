"""Bookkeeping that all tests share: a claim mark names entries of the ledger, and nothing else."""

from pathlib import Path

import pytest

import ledger

ROOT = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a claim mark without an id or with one that the ledger does not have."""
    known = {claim.id for claim in ledger.load(ROOT / "book" / "claims.yml")}
    for item in items:
        for mark in item.iter_markers("claim"):
            if not mark.args or mark.kwargs:
                raise pytest.UsageError(f"{item.nodeid}: write @pytest.mark.claim('MON-T1'), with at least one id")
            if unknown := set(mark.args) - known:
                raise pytest.UsageError(f"{item.nodeid}: book/claims.yml has no claim {', '.join(map(str, sorted(unknown)))}")
