"""The models of the papers' experiments and their baselines."""

from .classifiers import MLP, FullyConnectedMON, count_parameters
from .cnn import CNN
from .convolutional import ConvolutionalMON, MultiTierMON
from .table_d1 import TABLE_D1, Architecture

__all__ = [
    "CNN",
    "MLP",
    "TABLE_D1",
    "Architecture",
    "ConvolutionalMON",
    "FullyConnectedMON",
    "MultiTierMON",
    "count_parameters",
]
