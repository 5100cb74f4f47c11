"""infless: instances of unequal batch and size for the rate of each stage; see ``policy``."""

from headway.fleet.policies.infless.policy import Infless

__all__ = ["Infless"]
