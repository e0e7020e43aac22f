"""Fused GPU kernels of the training step, each beside the plain torch code that defines it.

The plain code runs on the CPU, in double precision, wherever Triton is missing and inside ``with plain():``; where its
speed matters, it is in cpu.py. The kernels run on CUDA tensors of single precision, and on the CPU in Triton's
interpreter (``TRITON_INTERPRET=1``).
They may be captured in CUDA graphs, never add with atomics, so that a step repeats bit for bit, and are compiled anew
for new feature or image sizes (constants, in capitals) but not for new numbers of nodes, trees or samples.
"""

from .images import Bands, bands, col2im, im2col, pixel_product, resample
from .launch import fast_products, fused, fused_images, plain, reduced
from .layers import linear, norm_leaky, row_sums
from .step import ADAM_BETAS, ADAM_EPSILON, adam, noise
from .terms import decisions, log_bernoulli, posterior, weigh

__all__ = [
    "ADAM_BETAS",
    "ADAM_EPSILON",
    "Bands",
    "adam",
    "bands",
    "col2im",
    "decisions",
    "fast_products",
    "fused",
    "fused_images",
    "im2col",
    "linear",
    "log_bernoulli",
    "noise",
    "norm_leaky",
    "pixel_product",
    "plain",
    "posterior",
    "reduced",
    "resample",
    "row_sums",
    "weigh",
]
