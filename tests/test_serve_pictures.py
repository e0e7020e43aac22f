"""Pictures that are sent to the explorer: which are read, how, and up to which size."""

import explorers
import numpy as np
import pytest
from explorers import HERE, error_of, png
from fastapi.testclient import TestClient

from treevae import TreeVAE
from treevae.serve.uploads import MOST_PIXELS, PictureError, read_picture


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(explorers.guarded(), base_url=HERE)


@pytest.fixture(scope="module")
def table() -> tuple[TreeVAE, TestClient]:
    return explorers.of_table()


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
@pytest.mark.parametrize("shape", [(8, 8), (30, 50), (50, 30, 3), (20, 20, 4)])
def test_pictures_of_all_kinds_are_read(client, form, shape):
    if form in ("JPEG", "BMP") and shape[-1] == 4:
        pytest.skip("it has no transparency")
    data = png(np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8), form)
    assert client.post("/api/place/image", files={"image": data}).status_code == 200


@pytest.mark.parametrize(
    ("samples", "channels"),
    [
        (np.zeros((2, 6, 9)), 1),
        (np.zeros((2, 6, 9, 3)), 3),
        (np.zeros((2, 3, 6, 9)), 3),
        (np.zeros((2, 1, 6, 9)), 1),
        (np.zeros((2, 6, 9, 4)), 4),
    ],
)
def test_a_picture_takes_the_form_of_the_samples(samples, channels):
    from treevae.data.arrays import InputForm

    form = InputForm.of(samples)
    red = png(np.full((60, 200, 3), (255, 0, 0), np.uint8))
    found = read_picture(red, form, (0.0, 1.0))
    assert found.shape == (1, *samples.shape[1:])
    assert found.dtype == np.uint8
    matrix = form.to_matrix(found).reshape(channels, -1)
    expected = {1: [76 / 255], 3: [1, 0, 0], 4: [1, 0, 0, 1]}[channels]  # grey is the eye's, not the mean
    np.testing.assert_allclose(matrix.mean(1), expected, atol=1e-6)
    wide = read_picture(red, form, (-1.0, 3.0))
    np.testing.assert_allclose(
        form.to_matrix(wide).reshape(channels, -1).mean(1), [4 * v - 1 for v in expected], atol=1e-5
    )


def test_the_middle_of_a_picture_is_taken_and_transparency_is_white():
    from treevae.data.arrays import InputForm

    form = InputForm.of(np.zeros((1, 10, 10)))
    wide = np.zeros((10, 30), np.uint8)
    wide[:, 10:20] = 200
    np.testing.assert_array_equal(read_picture(png(wide), form, (0.0, 1.0))[0], 200)
    assert (read_picture(png(np.zeros((10, 10, 4), np.uint8)), form, (0.0, 1.0)) == 255).all()


def test_pictures_are_bounded_and_never_half_read(client):
    side = int(MOST_PIXELS**0.5) + 1
    bomb = png(np.zeros((side, side), np.uint8))  # a few kB that would be many MB
    assert len(bomb) < 100_000
    assert f"{side} x {side} pixels; at most" in error_of(client.post("/api/place/image", files={"image": bomb}), 422)
    whole = png(np.random.default_rng(0).integers(0, 256, (50, 50, 3)).astype(np.uint8))
    sixteen = png(np.zeros((9, 9), np.uint16))
    for broken in (b"", b"x", whole[: len(whole) // 2], whole[:40], b"GIF89a" + b"\0" * 50, b"%PDF-1.4 " * 20, sixteen):
        assert "image: " in error_of(client.post("/api/place/image", files={"image": broken}), 422)
    rng = np.random.default_rng(1)
    for _ in range(60):  # bytes changed at random: a picture or a refusal, nothing else
        changed = bytearray(whole)
        for at in rng.integers(8, len(whole), 5):
            changed[at] = rng.integers(256)
        assert client.post("/api/place/image", files={"image": bytes(changed)}).status_code in (200, 422)


def test_a_picture_needs_a_model_of_pictures(table):
    model, _ = table
    with pytest.raises(PictureError, match="fitted on rows of 4 numbers"):
        read_picture(b"", model.fitted_.decides.form, (0.0, 1.0))
