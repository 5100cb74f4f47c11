"""infless: instances of unequal batch and size for the rate of each stage; see ``policy``."""

from headway.serving.policies.infless.policy import Infless

__all__ = ["Infless"]
