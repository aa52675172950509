"""What holds for every explorable: one small self-contained module, traits that its sliders move, the book's colours."""

import ast
import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from explorables.samples import NAMES, make, state, stem

import mon_lib.explorables
from mon_lib import figures
from mon_lib.explorables import DigitSolve, _base
from mon_lib.explorables._base import Explorable, bundle, stylesheet

FOLDER = Path(_base.__file__).parent


def test_every_component_is_exported_and_stands_in_one_chapter():
    modules = {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")}
    assert {stem(name) for name in NAMES} == modules and set(NAMES) == set(mon_lib.explorables.__all__)
    chapters = {path.name: path.read_text(encoding="utf-8") for path in (FOLDER.parents[1] / "book").glob("*.ipynb")}
    for name in NAMES:
        shown = [chapter for chapter, text in chapters.items() if re.search(rf"\b{name}\(", text)]
        assert len(shown) == 1, f"{name} is in {shown}"


@pytest.mark.parametrize("name", NAMES)
def test_scripts_are_small_and_reach_nothing_outside(name):
    scripts = [FOLDER / f"{stem(name)}{end}" for end in (".js", ".maths.js")]
    assert sum(script.stat().st_size for script in scripts) < 12_000
    maths = scripts[1].read_text(encoding="utf-8")
    assert not re.search(r"\b(document|window|svg|html)\b", re.sub(r"//.*", "", maths)), "maths apart from drawing"
    module = bundle(f"{stem(name)}.js").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|fetch\(|import\(|^import|XMLHttpRequest|localStorage", module, re.MULTILINE)
    assert module.count("export ") == module.count("export default {") == 1


@pytest.mark.parametrize("name", NAMES)
def test_module_loads(name):
    if (node := shutil.which("node")) is None:
        pytest.skip("No node: install Node.js (Debian, Ubuntu: apt-get install nodejs).")
    source = make(name)._esm
    code = "const m = await import('data:text/javascript;base64,' + process.argv[1]); console.log(typeof m.default.render);"
    text = base64.b64encode(source.encode()).decode()
    done = subprocess.run([node, "--input-type=module", "-e", code, text], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("function", "")


@pytest.mark.parametrize("name", NAMES)
def test_controls_and_traits_agree(name):
    """Each slider, choice and handle moves a trait, and each trait that is a number is moved by one (or is data)."""
    view = (FOLDER / f"{stem(name)}.js").read_text(encoding="utf-8")
    moved = set(re.findall(r'\.(?:slider|choice|toggle|handle)\("(\w+)"', view))
    traits = set(state(make(name)))
    assert moved <= traits
    chosen, arrays = {"m", "digit", "channel"}, {"images", "size", "states", "border", "steps", "probabilities", "bounds", "labels"}
    assert traits - moved <= chosen | arrays | {"shift"} | {"colours", "errors", "once", "each"} | {"originals"}
    assert len(moved) >= 1


@pytest.mark.parametrize("name", NAMES)
def test_state_is_small_and_plain(name):
    widget = make(name)
    assert len(json.dumps(state(widget))) < 100_000
    assert len(widget._esm) < 40_000


@pytest.mark.parametrize("name", NAMES)
def test_sliders_hold_the_first_state(name):
    view = (FOLDER / f"{stem(name)}.js").read_text(encoding="utf-8")
    widget = make(name)
    found = re.findall(r'ui\.slider\("(\w+)", \{[^}]*?min: ([\w.\-/ ]+), max: ([\w.\-/ ]+)[,}]', view)
    numbers = [(n, lo, hi) for n, lo, hi in found if re.match(r"[\d.\-/ e]+$", lo + hi)]
    assert name in ("DigitSolve", "ConvolutionSolve") or len(numbers) >= 2
    for trait, lo, hi in numbers:
        low, high = (float(a) / float(b or 1) for a, _, b in (x.partition("/") for x in (lo, hi)))
        assert low <= getattr(widget, trait) <= high


def test_names_come_once_in_a_module():
    """Kit, algebra and view share one scope: their names must not collide (node would refuse, and says less)."""
    for name in NAMES:
        module = bundle(f"{stem(name)}.js")
        top = re.findall(r"^(?:async )?(?:const|let|function|class) \{?(\w+)", module, re.MULTILINE)
        assert len(top) == len(set(top)), name


def test_the_base_class_is_abstract_and_unknown_traits_raise():
    with pytest.raises(TypeError, match="abstract"):
        Explorable()
    with pytest.raises(TypeError, match="'beta'"):
        mon_lib.explorables.SplittingPlane(beta=1)
    assert mon_lib.explorables.SplittingPlane(alpha=0.7).alpha == 0.7


def test_colours_are_those_of_the_figures():
    css = stylesheet()
    light, *dark = re.findall(r"\{(--[^}]*)\}", css)[:3]
    for name, colour in figures.COLOURS.items():
        assert f"--{name}:{colour};" in light
        assert all(f"--{name}:{figures.COLOURS_DARK[name]};" in block for block in dark)
    used = set()
    for script in FOLDER.glob("*.js"):
        text = script.read_text(encoding="utf-8")
        assert not re.search(r"#[0-9a-fA-F]{3,8}\b|rgb\(", text), f"{script.name} brings a colour of its own"
        used |= set(re.findall(r'"([a-z]+-[a-z]+|newton|anderson|naive|paper|ours|reference|muted)"', text))
    assert used & set(figures.COLOURS) >= {"forward-backward", "peaceman-rachford", "douglas-rachford", "naive"}


def test_every_component_has_its_three_files():
    """And no script lies about that belongs to none."""
    stems = {stem(name) for name in NAMES}
    assert {p.name.split(".")[0] for p in FOLDER.glob("*.js")} == stems | {"_classes", "_kit", "_linalg"}
    assert {p.stem for p in FOLDER.glob("*.py")} == stems | {"_base", "__init__"}
    for path in FOLDER.glob("*.py"):
        assert "__all__" in path.read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((2, 4, 4))}, "images must be"),
        ({"probabilities": np.zeros((3, 5, 10))}, "images must be"),
        ({"labels": [1, 2]}, r"labels must be \(3,\)"),
        ({"bounds": np.full((3, 4), np.inf)}, "finite"),
        ({"images": np.zeros((3, 32, 32))}, "at most 40"),
        ({"step": 5}, "step"),
        ({"digit": 3}, "digit"),
    ],
)
def test_digit_solve_refuses(change, message):
    arguments = {
        "images": np.zeros((3, 4, 4)),
        "probabilities": np.full((3, 4, 10), 0.1),
        "bounds": np.ones((3, 4)),
        "labels": [0, 1, 2],
    }
    with pytest.raises(ValueError, match=message):
        DigitSolve(**arguments | change)


def test_digit_solve_at_its_largest_is_under_a_megabyte():
    rng = np.random.default_rng(0)
    widget = DigitSolve(rng.random((40, 28, 28)), rng.random((40, 100, 10)), rng.random((40, 100)), np.arange(40) % 10)
    assert len(json.dumps(state(widget))) < 1_000_000
