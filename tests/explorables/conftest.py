"""Runs a component's mathematics in node."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from mon_lib.explorables._base import bundle

NODE = shutil.which("node")

# JSON has no infinity; Python's reader takes these words.
_PRINT = """
const spell = (_, v) => (typeof v === "number" && !Number.isFinite(v) ? "@" + (Number.isNaN(v) ? "NaN" : v) : v);
console.log(JSON.stringify(%s, spell).replace(/"@(-?\\w+)"/g, "$1"));
"""


@pytest.fixture(scope="session")
def node():
    """node(module, expression): the value of a JavaScript expression with the module's functions in scope."""
    if NODE is None:
        pytest.skip("No node: install Node.js (Debian, Ubuntu: apt-get install nodejs) to test the explorables' mathematics.")

    def run(module: str, expression: str) -> Any:
        source = bundle(module) + _PRINT % expression
        done = subprocess.run([NODE, "--input-type=module"], input=source, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
