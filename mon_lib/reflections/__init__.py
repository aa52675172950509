"""Householder reflections, products of them, and one reflection chosen by its input, f(x) = H(Wx)x ("One Reflection Suffice")."""

__all__ = []
