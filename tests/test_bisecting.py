"""Bisecting k-means against scikit-learn's, its splits, and what it refuses; test_ward.py has what Ward refuses too."""

from typing import Any

import numpy as np
import pytest
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_info, threadpool_limits

from treevae.baselines.bisecting import Bisecting


def test_the_widest_cluster_is_halved() -> None:
    chance = np.random.default_rng(0)
    centres, group = np.array([[0, 0], [1, 0], [10, 0], [10, 2]]), np.repeat(range(4), [60, 20, 10, 10])
    X = centres[group] + chance.normal(0, 0.05, (100, 2))
    for k, joined in ((2, [0, 0, 1, 1]), (3, [0, 0, 1, 2]), (4, [0, 1, 2, 3])):  # 20 lie wider than the other 80
        found = Bisecting(k, random_state=0).fit(X)
        assert adjusted_rand_score(np.array(joined)[group], found.labels_) == 1
    assert found.tree_.height == 2  # far ones part first
    assert (found.predict(X) == found.labels_).all()
    assert (found.predict(centres)[group] == found.labels_).all()
    assert (Bisecting(4, random_state=0).fit(X).labels_ == found.labels_).all()


def blobs(dtype: type) -> np.ndarray:
    """Six groups, well apart, in a plane."""
    centres = np.array([[0, 0], [0, 3], [20, 0], [20, 4], [60, 0], [60, 9]])
    return (centres.repeat(500, 0) + np.random.default_rng(0).normal(0, 0.2, (3000, 2))).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_are_those_of_scikit_learn(dtype: type) -> None:
    X = blobs(dtype)
    for k in range(1, 7):
        theirs = BisectingKMeans(k, n_init=10, random_state=0, bisecting_strategy="biggest_inertia").fit(X)
        assert adjusted_rand_score(Bisecting(k, random_state=1).fit(X).labels_, theirs.labels_) == 1


@pytest.mark.parametrize("offset", [1e5, -1e5, 1e9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_are_the_same_far_from_zero(dtype: type, offset: float) -> None:
    far = (1e-5 * abs(offset) * blobs(np.float64) + offset).astype(dtype)  # a group is 25 of float32's steps wide
    found = Bisecting(6, random_state=0).fit(far)
    assert adjusted_rand_score(np.arange(6).repeat(500), found.labels_) == 1
    assert (found.predict(far) == found.labels_).all()
    for other in (np.float32, np.float64):
        assert (found.predict(far[:5].astype(other)) == found.labels_[:5]).all()


@pytest.mark.parametrize("value", [0.1, 1e22, 1e30])
def test_a_constant_feature_makes_no_difference(value: float) -> None:
    X = blobs(np.float64)[::30]
    with_it = np.column_stack([X, np.full(len(X), value)])
    found = Bisecting(6, random_state=0).fit(with_it)
    np.testing.assert_array_equal(found.labels_, Bisecting(6, random_state=0).fit(X).labels_)
    np.testing.assert_array_equal(found.predict(with_it), found.labels_)


def test_sums_have_one_order_whatever_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, fit = set[int](), KMeans.fit

    def noted(self: KMeans, X: np.ndarray) -> KMeans:
        threads.update(pool["num_threads"] for pool in threadpool_info())
        return fit(self, X)

    monkeypatch.setattr(KMeans, "fit", noted)
    with threadpool_limits(2):
        Bisecting(3, random_state=0).fit(blobs(np.float32))
    assert threads == {1}


def test_times_a_minute_apart_are_told_apart() -> None:
    times = np.array([[1_700_000_000], [1_700_000_060]])
    assert {*Bisecting(2, random_state=0).fit_predict(times)} == {0, 1}


def test_fewer_clusters_than_asked_for_are_told() -> None:
    X = np.array([0.1, 0.7, 0.9])[:, None].repeat(7, 0)  # whose means are rounded
    with pytest.warns(ConvergenceWarning, match="leaves in the tree: 3, fewer than n_clusters=5") as told:
        found = Bisecting(5, random_state=0).fit(X)
    assert len(told) == 1  # scikit-learn's k-means was not asked to part samples that are the same
    assert len(found.tree_.leaves) == 3
    assert adjusted_rand_score(np.arange(3).repeat(7), found.labels_) == 1


@pytest.mark.parametrize("unit", [1e-24, 3.1320896e-23])  # of the latter's squares the sum is just above 0
def test_samples_closer_than_squares_can_tell_stay_together(unit: float) -> None:
    X = np.array([[2], [0], [1], [1], [2]], dtype=np.float32) * np.float32(unit)
    with pytest.warns(ConvergenceWarning, match="too close to be told apart"):
        found = Bisecting(3, random_state=0).fit(X)
    assert len(found.tree_.leaves) == 1
    assert not found.labels_.any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_whose_squares_no_float_can_hold_are_refused(dtype: type) -> None:
    X = (np.arange(3) * np.sqrt(np.finfo(dtype).max)).astype(dtype)[:, None]
    with pytest.raises(ValueError, match="add up to more"):
        Bisecting(3, random_state=0).fit(X / 2)  # whose squares a float can hold, and k-means' sums of them cannot
    assert len({*Bisecting(3, random_state=0).fit_predict(X / 4)}) == 3
    with pytest.raises(
        ValueError, match=rf"X holds values as large as .* add up to more than {dtype.__name__} can hold"
    ):
        Bisecting(3, random_state=0).fit(X)


def test_means_of_many_small_floats_are_not_rounded_again_and_again() -> None:
    X = np.full((400_000, 2), 0.1, dtype=np.float32)
    X[:10] = 0.2
    found = Bisecting(2, random_state=0).fit(X)
    assert np.bincount(found.labels_).tolist() in ([10, len(X) - 10], [len(X) - 10, 10])
    mean = X.mean(0, dtype=np.float64)
    np.testing.assert_allclose(found._splits[0]._mean, mean, rtol=1e-7)


def test_the_best_of_the_starts_is_kept() -> None:
    angles = np.arange(6) * np.pi / 3
    ring = np.stack([1.5 * np.cos(angles), np.sin(angles)], axis=1)  # a fifth of all starts part it across

    def is_best(n_init: int, seed: int) -> bool:
        labels = Bisecting(2, n_init, random_state=seed).fit_predict(ring)
        return len({*labels[ring[:, 0] > 0]}) == len({*labels[ring[:, 0] < 0]}) == 1

    assert all(is_best(10, seed) for seed in range(20))
    assert not all(is_best(1, seed) for seed in range(20))


@pytest.mark.parametrize("n", [0, True, "auto"])
def test_number_of_starts_must_fit(n: Any) -> None:
    with pytest.raises(ValueError, match=rf"n_init={n!r} must be a whole number of at least 1"):
        Bisecting(2, n).fit(blobs(np.float64))


IMAGES = np.random.default_rng(0).random((40, 4, 4))


@pytest.mark.parametrize(
    ("seen", "given", "message"),
    [
        (IMAGES, IMAGES[:, :, :3], r"samples of shape \(4, 3\), but the model was fitted on samples of shape \(4, 4\)"),
        (IMAGES, IMAGES[:, None], r"samples of shape \(1, 4, 4\), but .* on samples of shape \(4, 4\)"),
        (IMAGES, IMAGES[0], r"X has shape \(4, 4\), but .* on images of shape \(4, 4\); .* X\[None\]"),
        (IMAGES, IMAGES.reshape(40, 16), r"X has shape \(40, 16\), but .* on images of shape \(4, 4\)"),
        (IMAGES.reshape(40, 16), IMAGES, r"samples of shape \(4, 4\), but .* on samples of shape \(16,\)"),
        (IMAGES.reshape(40, 16), IMAGES.tolist(), r"samples of shape \(4, 4\), but .* on samples of shape \(16,\)"),
        (IMAGES[:, 0], IMAGES[:, 0, :3], "X has 3 features, but Bisecting is expecting 4"),
    ],
)
def test_samples_of_another_shape_are_refused(seen: np.ndarray, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bisecting(2, random_state=0).fit(seen).predict(given)


def test_new_images_are_placed_as_their_pixels() -> None:
    as_images, as_vectors = (Bisecting(5, random_state=0).fit(X) for X in (IMAGES[:30], IMAGES[:30].reshape(30, 16)))
    np.testing.assert_array_equal(as_images.predict(IMAGES[30:]), as_vectors.predict(IMAGES[30:].reshape(10, 16)))
    np.testing.assert_array_equal(as_images.predict(IMAGES[:30].tolist()), as_images.labels_)
