"""The models of the papers' experiments and their baselines."""

from .classifiers import MLP, FullyConnectedMON, count_parameters

__all__ = ["MLP", "FullyConnectedMON", "count_parameters"]
