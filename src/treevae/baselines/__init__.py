"""Other ways to find groups, to compare with; the same words as the estimator."""

from .bisecting import Bisecting
from .deepect import DeepECT
from .ladder import VAE, LadderVAE
from .ward import Ward

__all__ = ["VAE", "Bisecting", "DeepECT", "LadderVAE", "Ward"]
