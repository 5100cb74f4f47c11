"""Schedule kernels of programs on one GPU: model, policies, simulation, sharing for real, pages."""

import sys

from headway import _Tree

sys.modules[__name__].__class__ = _Tree
