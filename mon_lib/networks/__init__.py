"""The models of the papers' experiments and their baselines."""

from .classifiers import MLP, FullyConnectedMON, count_parameters
from .cnn import CNN
from .convolutional import ConvolutionalMON, MultiTierMON
from .formed import Cayley, MatrixExponential
from .recurrent import PixelSequence, ReflectionRNN, cayley_initialisation, henaff_initialisation
from .svd import SVDClassifier, SVDLayer, UniformDraw
from .table_d1 import TABLE_D1, Architecture

__all__ = [
    "CNN",
    "MLP",
    "TABLE_D1",
    "Architecture",
    "Cayley",
    "ConvolutionalMON",
    "FullyConnectedMON",
    "MatrixExponential",
    "MultiTierMON",
    "PixelSequence",
    "ReflectionRNN",
    "SVDClassifier",
    "SVDLayer",
    "UniformDraw",
    "cayley_initialisation",
    "count_parameters",
    "henaff_initialisation",
]
