"""Interactive figures: each runs in the reader's browser, with no kernel and no network.

Every component is an `anywidget` whose mathematics (``*.maths.js``) is tested in node against `mon_lib`.
"""

from .activation_prox import ActivationProx
from .circle_map import CircleMap
from .complementary_cones import ComplementaryCones
from .convolution_solve import ConvolutionSolve
from .digit_solve import DigitSolve
from .error_race import ErrorRace
from .folding_gaussian import FoldingGaussian
from .implicit_gradient import ImplicitGradient
from .latent_dials import LatentDials
from .memory_orbit import MemoryOrbit
from .mirror_stack import MirrorStack
from .naive_versus_splitting import NaiveVersusSplitting
from .numerical_range import NumericalRange
from .one_mirror import OneMirror
from .reflected_area import ReflectedArea
from .resolvent_cayley import ResolventCayley
from .secular_root import SecularRoot
from .solve_cost import SolveCost
from .splitting_plane import SplittingPlane
from .steps_versus_alpha import StepsVersusAlpha
from .three_sheets import ThreeSheets
from .two_tiers import TwoTiers
from .wrap_around import WrapAround

__all__ = [
    "ActivationProx",
    "CircleMap",
    "ComplementaryCones",
    "ConvolutionSolve",
    "DigitSolve",
    "ErrorRace",
    "FoldingGaussian",
    "ImplicitGradient",
    "LatentDials",
    "MemoryOrbit",
    "MirrorStack",
    "NaiveVersusSplitting",
    "NumericalRange",
    "OneMirror",
    "ReflectedArea",
    "ResolventCayley",
    "SecularRoot",
    "SolveCost",
    "SplittingPlane",
    "StepsVersusAlpha",
    "ThreeSheets",
    "TwoTiers",
    "WrapAround",
]
