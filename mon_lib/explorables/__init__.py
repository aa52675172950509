"""Interactive figures: each runs in the reader's browser, with no kernel and no network.

Every component is an `anywidget` whose mathematics (``*.maths.js``) is tested in node against `mon_lib`.
"""

from .activation_prox import ActivationProx
from .complementary_cones import ComplementaryCones
from .convolution_solve import ConvolutionSolve
from .digit_solve import DigitSolve
from .implicit_gradient import ImplicitGradient
from .naive_versus_splitting import NaiveVersusSplitting
from .numerical_range import NumericalRange
from .resolvent_cayley import ResolventCayley
from .solve_cost import SolveCost
from .splitting_plane import SplittingPlane
from .steps_versus_alpha import StepsVersusAlpha
from .two_tiers import TwoTiers
from .wrap_around import WrapAround

__all__ = [
    "ActivationProx",
    "ComplementaryCones",
    "ConvolutionSolve",
    "DigitSolve",
    "ImplicitGradient",
    "NaiveVersusSplitting",
    "NumericalRange",
    "ResolventCayley",
    "SolveCost",
    "SplittingPlane",
    "StepsVersusAlpha",
    "TwoTiers",
    "WrapAround",
]
