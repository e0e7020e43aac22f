"""Views against kornia and torch's own resizing: the same parameters in, the same pixels out; and what is drawn."""

import dataclasses
import math

import kornia
import pytest
import torch
import torch.nn.functional as F

from treevae.data.augment import (
    AUGMENTATIONS,
    DrawingAugmentation,
    PhotoAugmentation,
    PhotoDraw,
    brighten,
    contrast,
    grey,
    read_at,
    saturate,
    turn_hue,
)

NAMES = list(AUGMENTATIONS)
PHOTOS = [name for name in NAMES if isinstance(AUGMENTATIONS[name], PhotoAugmentation)]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def photos():
    """Noise, and the images where hue is undefined or two colours tie."""
    x = torch.rand(24, 3, 16, 12, dtype=torch.float64)
    x[0], x[1], x[2] = 0.0, 1.0, 0.5
    x[3, 0] = x[3, 1]
    x[4, 1] = x[4, 2]
    x[5, 0] = x[5, 2]
    x[6] = x[6].round()
    x[7, 1:] = 0
    return x


def factors(n, low, high):
    return torch.empty(n, 1, 1, 1, dtype=torch.float64).uniform_(low, high)


@pytest.mark.parametrize(
    ("ours", "oracle"),
    [
        (brighten, kornia.enhance.adjust_brightness_accumulative),
        (contrast, kornia.enhance.adjust_contrast_with_mean_subtraction),
        (saturate, kornia.enhance.adjust_saturation_with_gray_subtraction),
    ],
)
def test_factors_of_colour_against_kornia(ours, oracle, photos):
    factor = factors(24, 0.6, 1.4)
    torch.testing.assert_close(ours(photos, factor), oracle(photos, factor.flatten()))


def test_grey_against_kornia(photos):
    torch.testing.assert_close(grey(photos), kornia.color.rgb_to_grayscale(photos))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_hue_against_kornia(dtype, photos):
    turns = factors(24, -1 / 3, 1 / 3)
    photos, turns = photos.to(dtype), turns.to(dtype)
    expected = kornia.enhance.adjust_hue(photos, turns.flatten() * 2 * math.pi)  # its saturation is 1e-8 off by design
    torch.testing.assert_close(turn_hue(photos, turns), expected, atol=1e-7 if dtype == torch.float64 else 2e-6, rtol=0)


def test_no_turn_of_the_hue_changes_nothing(photos):
    torch.testing.assert_close(turn_hue(photos, factors(24, 0, 0)), photos, atol=1e-15, rtol=0)


def test_hues_that_turn_too_far_are_refused():
    with pytest.raises(ValueError, match=r"hue is .* must be in \[0, 1/3\]; got 0.5"):
        dataclasses.replace(AUGMENTATIONS["cifar"], hue=0.5)


@pytest.mark.parametrize("shape", [(5, 3, 16, 16), (5, 1, 9, 14)])
def test_the_grid_is_torchs_own(shape):
    x, theta = torch.rand(shape, dtype=torch.float64), torch.randn(5, 2, 3, dtype=torch.float64)
    for outside, mode in (("border", "bicubic"), ("zeros", "bilinear")):
        grid = F.affine_grid(theta, list(shape), align_corners=False)
        expected = F.grid_sample(x, grid, mode=mode, padding_mode=outside, align_corners=False)
        torch.testing.assert_close(read_at(x, theta, outside, mode), expected)


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_crop_is_the_resized_slice(mirrored, photos):
    """A crop that begins at a pixel, away from its border, where a slice cannot see its neighbours."""
    top, left, height, width = 2, 3, 10, 7
    wide, tall = width / 12, height / 16
    across, down = (2 * left + width) / 12 - 1, (2 * top + height) / 16 - 1
    theta = torch.tensor([[-wide if mirrored else wide, 0, across], [0, tall, down]], dtype=torch.float64)
    view = read_at(photos, theta.expand(24, 2, 3), "border", "bicubic")
    part = photos[:, :, top : top + height, left : left + width]
    expected = F.interpolate(part, size=(16, 12), mode="bicubic", align_corners=False)
    expected = kornia.geometry.transform.hflip(expected) if mirrored else expected
    torch.testing.assert_close(view[..., 4:-4, 4:-4], expected[..., 4:-4, 4:-4])


@pytest.mark.parametrize("name", PHOTOS)
def test_a_photo_is_each_step_in_turn(name, photos):
    augmentation = AUGMENTATIONS[name]
    draw = augmentation.draw(photos)
    x = read_at(photos, draw.theta, "border", "bicubic").clamp(0, 1)
    x = kornia.enhance.adjust_brightness_accumulative(x, draw.brightness.flatten())
    x = kornia.enhance.adjust_contrast_with_mean_subtraction(x, draw.contrast.flatten())
    x = kornia.enhance.adjust_saturation_with_gray_subtraction(x, draw.saturation.flatten())
    if draw.hue is not None:
        x = kornia.enhance.adjust_hue(x, draw.hue.flatten() * 2 * math.pi)
    if draw.grey is not None:
        x = torch.where(draw.grey, kornia.color.rgb_to_grayscale(x), x)
    torch.testing.assert_close(augmentation.apply(photos, draw), x, atol=1e-7, rtol=0)


def test_a_draw_that_changes_nothing(photos):
    one = torch.ones(24, 1, 1, 1, dtype=torch.float64)
    theta = torch.eye(2, 3, dtype=torch.float64).expand(24, 2, 3)
    draw = PhotoDraw(theta, one, one, one, 0 * one, one < 0)
    torch.testing.assert_close(AUGMENTATIONS["cifar"].apply(photos, draw), photos)


def test_drawings_against_kornia():
    """Each movement as a matrix in pixels, the image moved by their product; kornia moves ink, and we white."""
    height, width, n = 14, 18, 6
    x = torch.rand(n, 1, height, width, dtype=torch.float64)
    augmentation = DrawingAugmentation("one", degrees=10, pixels=2, shear=0.1, zoom=0.1)
    torch.manual_seed(3)
    theta = augmentation.draw(x)
    torch.manual_seed(3)
    turn = math.radians(10)
    angle, shear, zoom = (
        torch.empty(n, dtype=torch.float64).uniform_(*r) for r in ((-turn, turn), (-0.1, 0.1), (0.9, 1.1))
    )
    shift = torch.empty(2, n, dtype=torch.float64).uniform_(-2, 2)
    middle = torch.eye(3, dtype=torch.float64)
    middle[:2, 2] = torch.tensor([(width - 1) / 2, (height - 1) / 2])
    moved = []
    for i in range(n):
        cos, sin = angle[i].cos(), angle[i].sin()
        shifted = torch.eye(3, dtype=torch.float64)
        shifted[:2, 2] = -shift[:, i]
        turned, sheared, zoomed = (torch.eye(3, dtype=torch.float64) for _ in range(3))
        turned[:2, :2] = torch.tensor([[cos, sin], [-sin, cos]])
        sheared[0, 1] = -shear[i]
        zoomed[:2, :2] *= zoom[i]
        moved.append(middle @ zoomed @ turned @ sheared @ shifted @ middle.inverse())
    forward = torch.stack(moved)[:, :2]
    expected = 1 - kornia.geometry.transform.warp_affine(1 - x, forward, (height, width), align_corners=True)
    torch.testing.assert_close(augmentation.apply(x, theta), expected)


def test_what_comes_in_from_outside_is_white():
    black = torch.zeros(200, 1, 28, 28)
    views = AUGMENTATIONS["omniglot"](black)
    assert (views.amax((1, 2, 3)) > 0.5).float().mean() > 0.9  # nearly every view shows some of the outside
    assert views[:, :, 10:18, 10:18].max() < 1e-6
    white = AUGMENTATIONS["omniglot"](torch.ones(20, 1, 28, 28))
    assert (white == 1).all()


@pytest.mark.parametrize(
    ("name", "scale", "ratio", "factor"),
    [("cifar", (0.2, 1), (3 / 4, 4 / 3), (0.6, 1.4)), ("celeba", (3 / 4, 1), (4 / 5, 5 / 4), (0.8, 1.2))],
)
def test_what_is_drawn_for_photos(name, scale, ratio, factor):
    n = 20000
    draw = AUGMENTATIONS[name].draw(torch.empty(n, 3, 32, 32))
    wide, tall = draw.theta[:, 0, 0].abs(), draw.theta[:, 1, 1]
    across, down = draw.theta[:, 0, 2], draw.theta[:, 1, 2]
    assert (draw.theta[:, 0, 1] == 0).all()
    assert (draw.theta[:, 1, 0] == 0).all()
    assert (across.abs() + wide).max() <= 1 + 1e-6  # inside the image
    assert (down.abs() + tall).max() <= 1 + 1e-6
    fits = (wide < 1) & (tall < 1)  # nearly all: the others were made to fit
    assert fits.float().mean() > 0.995
    area, sides_ratio = wide * tall, wide / tall
    assert scale[0] - 1e-5 < area.min() < scale[0] + 0.02
    assert ratio[0] - 1e-5 < sides_ratio.min() < ratio[0] + 0.01
    assert ratio[1] - 0.01 < sides_ratio.max() < ratio[1] + 1e-5
    assert abs((draw.theta[:, 0, 0] < 0).float().mean() - 0.5) < 0.02
    room = 1 - wide[fits]
    assert abs((across[fits] / room).mean()) < 0.02
    assert abs((across[fits] / room).abs().mean() - 0.5) < 0.02
    unchanged = draw.brightness == 1
    assert abs(unchanged.float().mean() - 0.2) < 0.02
    for values in (draw.brightness, draw.contrast, draw.saturation):
        assert torch.equal(values == 1, unchanged)
        assert factor[0] <= values.min() < factor[0] + 0.01
        assert factor[1] - 0.01 < values.max() <= factor[1]
        assert abs(values[~unchanged].mean() - 1) < 0.01
    assert (
        abs(torch.corrcoef(torch.stack((draw.brightness, draw.contrast)).flatten(1)[:, ~unchanged.flatten()])[0, 1])
        < 0.03
    )
    if name == "cifar":
        assert torch.equal(draw.hue == 0, unchanged)
        assert -0.1 <= draw.hue.min() < -0.099
        assert 0.099 < draw.hue.max() <= 0.1
        assert abs(draw.grey.float().mean() - 0.2) < 0.02
    else:
        assert draw.hue is None
        assert draw.grey is None


def test_areas_and_ratios_of_small_crops_are_uniform():
    """Where every crop fits nothing is clamped, so the whole law can be seen."""
    augmentation = dataclasses.replace(AUGMENTATIONS["cifar"], scale=(0.2, 0.4))
    theta = augmentation.draw(torch.empty(20000, 3, 24, 32)).theta
    wide, tall = theta[:, 0, 0].abs(), theta[:, 1, 1]
    area = (wide * tall - 0.2) / 0.2
    log_ratio = (wide * 32 / (tall * 24)).log() / math.log(4 / 3) / 2 + 0.5  # of pixels
    for values in (area, log_ratio):
        shares = torch.histc(values, 10, 0, 1) / 20000
        assert (shares - 0.1).abs().max() < 0.012


def test_of_one_try_a_crop_that_does_not_fit_is_cut():
    """Two in five of those for faces; of several tries next to none."""
    celeba = AUGMENTATIONS["celeba"]
    several, one = (
        dataclasses.replace(celeba, tries=tries).draw(torch.empty(20000, 3, 32, 32)).theta for tries in (8, 1)
    )
    cut = [float(((theta[:, 0, 0].abs() == 1) | (theta[:, 1, 1] == 1)).float().mean()) for theta in (several, one)]
    assert celeba.tries == 8
    assert cut[0] < 0.01
    assert 0.35 < cut[1] < 0.45


def test_there_is_at_least_one_try():
    with pytest.raises(ValueError, match="tries=0 crops are too few"):
        dataclasses.replace(AUGMENTATIONS["cifar"], tries=0)


def test_what_is_drawn_for_drawings():
    theta = AUGMENTATIONS["omniglot"].draw(torch.empty(20000, 1, 28, 28, dtype=torch.float64))
    zoom = torch.linalg.det(theta[:, :, :2]) ** -0.5  # neither rotation nor shear changes an area
    assert 0.9 <= zoom.min() < 0.901
    assert 1.099 < zoom.max() <= 1.1
    angle = torch.atan2(theta[:, 1, 0], theta[:, 1, 1]).rad2deg()
    assert -10 <= angle.min() < -9.95
    assert 9.95 < angle.max() <= 10
    shear = (theta[:, :, 0] * theta[:, :, 1]).sum(-1) * zoom**2  # first order: the columns' scalar product
    assert 0.0098 < shear.abs().max() < 0.0101
    pixels = theta[:, :, 2] * 14
    assert (pixels.abs().amax(0) <= 2).all()
    assert (pixels.abs().amax(0) > 1.99).all()
    assert abs(torch.corrcoef(pixels.T)[0, 1]) < 0.03


@pytest.mark.parametrize("name", NAMES)
def test_shape_type_and_range(name):
    for x in (
        torch.rand(64, 3, 20, 17),
        torch.ones(64, 3, 8, 8),
        torch.zeros(64, 3, 8, 8),
        torch.rand(64, 3, 8, 8).round(),
    ):
        before = x.clone()
        view = AUGMENTATIONS[name](x)
        assert view.shape == x.shape
        assert view.dtype == torch.float32
        assert view.is_contiguous()
        assert view.min() >= 0
        assert view.max() <= 1
        assert torch.equal(x, before)


@pytest.mark.parametrize("name", NAMES)
def test_samples_differ_and_a_seed_repeats(name):
    x = torch.rand(1, 3, 16, 16).expand(32, 3, 16, 16)
    torch.manual_seed(7)
    first = AUGMENTATIONS[name](x)
    torch.manual_seed(7)
    assert torch.equal(AUGMENTATIONS[name](x), first)
    assert len(first.flatten(1).unique(dim=0)) == 32
    assert not torch.equal(AUGMENTATIONS[name](x), first)


@pytest.mark.parametrize("name", PHOTOS)
def test_photos_need_three_channels(name):
    with pytest.raises(ValueError, match=f"'{name}' changes colours and needs images of 3 channels, got 1"):
        AUGMENTATIONS[name](torch.rand(4, 1, 8, 8))


def test_the_named_ones_have_the_papers_numbers():
    """Appendix E.1.2; what CelebA lacks is the hue and the grey."""
    cifar, celeba, omniglot = (AUGMENTATIONS[name] for name in ("cifar", "celeba", "omniglot"))
    assert (cifar.scale, cifar.ratio) == ((0.2, 1), (3 / 4, 4 / 3))
    assert (cifar.p_jitter, cifar.jitter, cifar.hue, cifar.p_grey) == (0.8, (0.6, 1.4), 0.1, 0.2)
    assert (celeba.scale, celeba.ratio) == ((3 / 4, 1), (4 / 5, 5 / 4))
    assert (celeba.p_jitter, celeba.jitter, celeba.hue, celeba.p_grey) == (0.8, (0.8, 1.2), 0, 0)
    assert (omniglot.degrees, omniglot.pixels, omniglot.shear, omniglot.zoom) == (10, 2, 0.01, 0.1)
