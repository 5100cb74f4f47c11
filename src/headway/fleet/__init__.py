"""Schedule inference pipelines on a fleet of workers: model, policies, traces, simulation, live server, pages."""

import sys

from headway import _Tree

sys.modules[__name__].__class__ = _Tree
