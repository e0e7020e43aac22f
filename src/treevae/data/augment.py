"""Random views of images: another draw for every sample, made where the batch is.

An augmentation is any callable on a float32 batch (n, channel, height, width) with values in [0, 1] that returns the
same shape and range; a user's own is as good as those in :data:`AUGMENTATIONS`, which are the paper's. These draw from
torch's default generator of the batch's device, so ``torch.manual_seed`` repeats them, and consist of tensor operations
that the host never waits for. Each is two steps, ``draw`` and ``apply``: the second is a plain function of the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

GREY = (0.299, 0.587, 0.114)  # what red, green and blue add to the brightness of a pixel, ITU-R BT.601


class PhotoDraw(NamedTuple):
    """What is done to each of n photographs; all but ``theta`` have shape (n, 1, 1, 1)."""

    theta: Tensor  # (n, 2, 3): where in [-1, 1]² a pixel of the view is read; crop and flip
    brightness: Tensor  # factors; 1 changes nothing
    contrast: Tensor
    saturation: Tensor
    hue: Tensor | None  # in turns; 0 changes nothing
    grey: Tensor | None  # whether all colour is taken away


@dataclass(frozen=True)
class PhotoAugmentation:
    """A crop, perhaps mirrored, then with some probability changes of colour, then with some probability grey.

    The order is fixed: crop and flip, brightness, contrast, saturation, hue, grey. A crop need not begin at a pixel;
    pixels are read with bicubic interpolation. Of several crops that are drawn one that fits into the image is taken,
    and in the rare case that none does, its sides are cut to the image's.
    """

    name: str
    scale: tuple[float, float]  # area of the crop, as a part of the image's
    ratio: tuple[float, float]  # width / height of the crop, log-uniform
    jitter: tuple[float, float]  # factors of brightness, contrast and saturation
    hue: float = 0.0  # the most that hues turn to either side, in turns
    p_jitter: float = 0.8
    p_grey: float = 0.0
    tries: int = 8  # crops that are drawn for every photograph; of those for faces two in five do not fit

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ValueError(f"tries={self.tries} crops are too few for a photograph; draw at least 1")
        if not 0 <= self.hue <= 1 / 3:
            raise ValueError(f"hue is the most that colours turn, in turns, and must be in [0, 1/3]; got {self.hue}")

    def __call__(self, x: Tensor) -> Tensor:
        """A random view of each image: (n, 3, height, width) -> the same."""
        if x.shape[1] != 3:
            raise ValueError(
                f"augmentation {self.name!r} changes colours and needs images of 3 channels, got {x.shape[1]}; "
                "use a callable of your own for others"
            )
        return self.apply(x, self.draw(x))

    def draw(self, x: Tensor) -> PhotoDraw:
        """What to do with each image of a batch."""
        n = len(x)
        unchanged = uniform(x, 0, 1, n, 1, 1, 1) >= self.p_jitter
        factors = uniform(x, *self.jitter, 3, n, 1, 1, 1).masked_fill_(unchanged, 1.0)
        brightness, contrasts, saturation = factors.unbind()
        hue = uniform(x, -self.hue, self.hue, n, 1, 1, 1).masked_fill_(unchanged, 0.0) if self.hue else None
        is_grey = uniform(x, 0, 1, n, 1, 1, 1) < self.p_grey if self.p_grey else None
        return PhotoDraw(self._crop(x), brightness, contrasts, saturation, hue, is_grey)

    def _crop(self, x: Tensor) -> Tensor:
        """Where the views are read: (n, 2, 3)."""
        n, _, height, width = x.shape
        # of the sides as parts of the image's: their product is the area, their ratio that of pixels * height / width
        low, high = (math.log(ratio * height / width) for ratio in self.ratio)
        log_ratio = uniform(x, low, high, self.tries, n)
        tries = torch.stack((log_ratio, -log_ratio)).exp_().mul_(uniform(x, *self.scale, self.tries, n)).sqrt_()
        fitting = (tries <= 1).all(0).byte().argmax(0)  # whichever: the tries are alike
        sides = tries.gather(1, fitting.expand(2, 1, n)).squeeze(1).clamp_(max=1.0)
        across, down = (1 - sides) * uniform(x, -1, 1, 2, n)  # the middle: uniform where the crop fits
        mirrored = torch.copysign(sides[0], uniform(x, -1, 1, n))
        zero = torch.zeros_like(across)
        return torch.stack((mirrored, zero, across, zero, sides[1], down), -1).view(n, 2, 3)

    def apply(self, x: Tensor, draw: PhotoDraw) -> Tensor:
        """The views that a draw describes."""
        x = read_at(x, draw.theta, "border", "bicubic").clamp_(0.0, 1.0)
        x = brighten(x, draw.brightness)
        x = contrast(x, draw.contrast)
        x = saturate(x, draw.saturation)
        if draw.hue is not None:
            x = turn_hue(x, draw.hue)
        if draw.grey is not None:
            x = torch.where(draw.grey, grey(x), x)
        return x


@dataclass(frozen=True)
class DrawingAugmentation:
    """Small movements of black on white: shifted, then turned, sheared and zoomed about the middle.

    What comes in from outside is white. The zoom is the same both ways, the shear is horizontal.
    """

    name: str
    degrees: float
    pixels: float
    shear: float
    zoom: float

    def __call__(self, x: Tensor) -> Tensor:
        """A random view of each image: (n, channel, height, width) -> the same."""
        return self.apply(x, self.draw(x))

    def draw(self, x: Tensor) -> Tensor:
        """Where in [-1, 1]² the pixels of each image's view are read: (n, 2, 3)."""
        n, _, height, width = x.shape
        turn = math.radians(self.degrees)
        angle = uniform(x, -turn, turn, n)
        shear = uniform(x, -self.shear, self.shear, n)
        zoom = uniform(x, 1 - self.zoom, 1 + self.zoom, n)
        shift = uniform(x, -self.pixels, self.pixels, 2, n)
        cos, sin = angle.cos() / zoom, angle.sin() / zoom
        # in pixels from the middle: the rows (1, shear), (0, 1) times the rotation by the angle, through zoom
        right = torch.addcmul(cos, shear, sin), torch.addcmul(-sin, shear, cos) * (height / width)
        down = sin * (width / height), cos
        rows = (*right, shift[0] * (2 / width), *down, shift[1] * (2 / height))
        return torch.stack(rows, -1).view(n, 2, 3)

    def apply(self, x: Tensor, theta: Tensor) -> Tensor:
        """The views that a draw describes."""
        ink = read_at(1 - x, theta, "zeros")  # outside there is none
        return (1 - ink).clamp_(min=0.0)  # rounding may make the weights of four pixels add up to more than 1


AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    augmentation.name: augmentation
    for augmentation in (
        PhotoAugmentation("cifar", scale=(0.2, 1), ratio=(3 / 4, 4 / 3), jitter=(0.6, 1.4), hue=0.1, p_grey=0.2),
        PhotoAugmentation("celeba", scale=(3 / 4, 1), ratio=(4 / 5, 5 / 4), jitter=(0.8, 1.2)),
        DrawingAugmentation("omniglot", degrees=10, pixels=2, shear=0.01, zoom=0.1),
    )
}


def uniform(like: Tensor, low: float, high: float, *shape: int) -> Tensor:
    """Uniform numbers where ``like`` is and of its type, in one launch."""
    return like.new_empty(shape).uniform_(low, high)


def read_at(x: Tensor, theta: Tensor, outside: str, mode: str = "bilinear") -> Tensor:
    """The images read at affine positions: ``theta`` (n, 2, 3) takes positions in the output to those in the input.

    The grid is that of ``F.affine_grid``, without its product of many small matrices, which is slow on a CPU.
    """
    height, width = x.shape[2:]
    across = torch.linspace(1 / width - 1, 1 - 1 / width, width, dtype=x.dtype, device=x.device).view(width, 1)
    down = torch.linspace(1 / height - 1, 1 - 1 / height, height, dtype=x.dtype, device=x.device).view(height, 1, 1)
    by_across, by_down, shift = theta[:, None, None].unbind(-1)  # (n, 1, 1, 2) each
    grid = torch.addcmul(torch.addcmul(shift, by_down, down), by_across, across)  # (n, height, width, 2)
    return F.grid_sample(x, grid, mode=mode, padding_mode=outside, align_corners=False)


def brighten(x: Tensor, factor: Tensor) -> Tensor:
    """The images times a factor, at most 1."""
    return (x * factor).clamp_(max=1.0)


def contrast(x: Tensor, factor: Tensor) -> Tensor:
    """The images moved away from their mean grey by a factor, within [0, 1]."""
    return torch.lerp(grey(x.mean((2, 3), keepdim=True)), x, factor).clamp_(0.0, 1.0)


def saturate(x: Tensor, factor: Tensor) -> Tensor:
    """The pixels moved away from their grey by a factor, within [0, 1]."""
    return torch.lerp(grey(x), x, factor).clamp_(0.0, 1.0)


def grey(x: Tensor) -> Tensor:
    """How bright each pixel is: (n, 3, height, width) -> (n, 1, height, width)."""
    red, green, blue = x.split(1, 1)
    return (red * GREY[0]).add_(green, alpha=GREY[1]).add_(blue, alpha=GREY[2])


def turn_hue(x: Tensor, turns: Tensor) -> Tensor:
    """The images with the H of HSV moved by at most a third of a turn; S and V stay.

    With V and m the largest and smallest colour of a pixel and C = V - m, the hue in sixths of a turn is
    h = 2 i + (next colour - colour after it) / C, where i is the place of the largest colour (0 red, 1 green, 2 blue).
    On the way back the colour in place j is V - C clamp(2 - ||u| - 3|, 0, 1), where u = h + 6 turns - 2 j: right for
    |u| <= 7. Here h and u are kept multiplied by C, so that grey, where C = 0 and h is undefined, needs no care.
    """
    red, green, blue = x.split(1, 1)
    largest, smallest = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
    chroma = largest - smallest
    of_green, of_blue = (blue - red).add_(chroma, alpha=2), (red - green).add_(chroma, alpha=4)
    hue = torch.where(red == largest, green - blue, torch.where(green == largest, of_green, of_blue))
    places = torch.arange(0, -5, -2, dtype=x.dtype, device=x.device).view(1, 3, 1, 1)  # -2 j
    wave = torch.addcmul(hue, chroma, torch.add(places, turns, alpha=6)).abs_().sub_(chroma, alpha=3).abs_()
    return wave.add_(torch.sub(largest, chroma, alpha=2)).clamp_(smallest, largest)
