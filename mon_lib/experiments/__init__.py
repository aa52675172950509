"""The experiments of the papers by name, and the results that the book draws.

``python -m mon_lib.experiments list | run NAME | report`` from the command line; `run`, `results` and `report` from Python.
Each run of one experiment with one seed leaves one file, which says everything about where it is from.
"""

from ._files import default_folder, provenance, save
from ._recipes import PROFILES, Experiment, Recipe
from ._registry import EXPERIMENTS
from ._results import report, results, summary
from ._run import run
from ._unfinished import Busy

__all__ = [
    "EXPERIMENTS",
    "PROFILES",
    "Busy",
    "Experiment",
    "Recipe",
    "default_folder",
    "provenance",
    "report",
    "results",
    "run",
    "save",
    "summary",
]
