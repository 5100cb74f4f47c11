"""Schedule training jobs on a cluster: model, rules, policies, traces, simulation, live queue, pages."""

import sys

from headway import _Tree

sys.modules[__name__].__class__ = _Tree
