"""The contrastive losses against double loops over pairs, written from the paper's formulas in float64."""

import math

import pytest
import torch

from treevae.model.contrastive import VARIANTS, contrast, nt_xent

N, TREES, DEPTHS, FEATURES = 5, 3, 3, 4
TREE_OF_ROUTER = torch.tensor([0, 2, 0, 1, 2, 2])  # of different numbers, in no order


def cosine(a, b):
    return (a * b).sum() / (a.square().sum().sqrt() * b.square().sum().sqrt())


def pair_losses(rows, temperature):
    """l_ij of every row with its pair, by the formula of section 2.6."""
    count, losses = len(rows), []
    for i in range(count):
        j = (i + count // 2) % count
        others = sum(torch.exp(cosine(rows[i], rows[k]) / temperature) for k in range(count) if k != i)
        losses.append(-torch.log(torch.exp(cosine(rows[i], rows[j]) / temperature) / others))
    return losses


def mean_loss(rows, temperature):
    return sum(pair_losses(rows, temperature)) / len(rows)


def loop_routers(logits, reach):
    r = torch.sigmoid(logits)
    losses = pair_losses([torch.stack((p, 1 - p)) for p in r], 1.0)
    return sum(w * loss for w, loss in zip(reach, losses, strict=True)) / sum(reach)


def loop_transposed(logits, reach):
    """L_clu of Li et al. (2021): columns of Y, the probabilities of the clusters, and minus H(Y)."""
    r, n = torch.sigmoid(logits), len(logits) // 2
    columns, entropy = [], 0.0
    for view in (slice(0, n), slice(n, None)):
        right, left = reach[view] * r[view], reach[view] * (1 - r[view])
        columns += [right, left]
        for column in (right, left):
            share = column.abs().sum() / (right.abs().sum() + left.abs().sum())
            entropy = entropy - share * torch.log(share)
    return mean_loss(columns, 1.0) - entropy


def loop_jensen_shannon(logits, reach):
    r, n = torch.sigmoid(logits), len(logits) // 2
    total, weights = 0.0, 0.0
    for i in range(n):
        weight = (reach[i] + reach[i + n]) / 2
        for p, q in ((r[i], r[i + n]), (1 - r[i], 1 - r[i + n])):
            m = (p + q) / 2
            total = total + weight * (p * torch.log(p / m) + q * torch.log(q / m)) / 2
        weights = weights + weight
    return total / weights


LOOPS = {
    "both": loop_routers,
    "routers": loop_routers,
    "transposed": loop_transposed,
    "jensen_shannon": loop_jensen_shannon,
}


def loop_contrast(variant, projections, logits, log_reach):
    """The two parts of each tree, one node and one depth after the other."""
    below, routers = [torch.zeros((), dtype=torch.float64)] * TREES, [torch.zeros((), dtype=torch.float64)] * TREES
    for tree in range(TREES):
        if projections is not None and variant in ("both", "bottom_up"):
            below[tree] = sum(mean_loss(p[tree], 0.5) for p in projections) / len(projections)
        if projections is not None and variant == "encoder":
            below[tree] = mean_loss(projections[-1][tree], 0.5)
    for i, tree in enumerate(TREE_OF_ROUTER.tolist()):
        if variant in LOOPS:
            routers[tree] = routers[tree] + LOOPS[variant](logits[i], log_reach[i].exp().detach())
    return torch.stack((torch.stack(below), torch.stack(routers)))


@pytest.fixture
def given():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    projections = [draw(TREES, 2 * N, FEATURES) for _ in range(DEPTHS)]
    return projections, 2 * draw(len(TREE_OF_ROUTER), 2 * N), -2 * draw(len(TREE_OF_ROUTER), 2 * N).abs()


def leaves(projections, logits, log_reach, dtype=torch.float64):
    """Copies that gradients arrive at."""
    return (
        [p.detach().to(dtype).requires_grad_() for p in projections],
        logits.detach().to(dtype).requires_grad_(),
        log_reach.detach().to(dtype).requires_grad_(),
    )


def gradients(parts, projections, logits):
    weights = torch.arange(1, 2 * TREES + 1).view(2, TREES)  # so that no two trees are mistaken for each other
    loss = (parts * weights.to(parts.dtype)).sum()
    if not loss.requires_grad:
        return []
    found = torch.autograd.grad(loss, [*projections, logits], allow_unused=True)
    return [torch.zeros(()) if g is None else g for g in found]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("subtree", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_against_a_double_loop(variant, subtree, dtype, given):
    ours, loops = leaves(*given, dtype=dtype), leaves(*given)
    found = contrast(variant, None if subtree else ours[0], *ours[1:], TREE_OF_ROUTER, TREES)
    expected = loop_contrast(variant, None if subtree else loops[0], *loops[1:])
    close = {} if dtype == torch.float64 else {"atol": 1e-5, "rtol": 1e-5}
    assert found.shape == (2, TREES)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, **close)
    pairs = zip(gradients(found, *ours[:2]), gradients(expected, *loops[:2]), strict=True)
    for ours_grad, loops_grad in pairs:
        torch.testing.assert_close(ours_grad.double(), loops_grad.double(), **close)


@pytest.mark.parametrize("variant", VARIANTS)
def test_which_part_a_variant_has(variant, given):
    below, routers = contrast(variant, *given, TREE_OF_ROUTER, TREES)
    assert bool((below != 0).all()) == (variant in ("both", "bottom_up", "encoder"))
    assert bool((routers != 0).all()) == (variant in LOOPS)


def test_the_reach_gets_no_gradient(given):
    projections, logits, log_reach = leaves(*given)
    for variant in LOOPS:
        loss = contrast(variant, projections, logits, log_reach, TREE_OF_ROUTER, TREES).sum()
        assert torch.autograd.grad(loss, log_reach, allow_unused=True) == (None,)


@pytest.mark.parametrize("variant", list(LOOPS))
def test_gradients_numerically(variant, given):
    projections, logits, log_reach = given
    assert torch.autograd.gradcheck(
        lambda *tensors: contrast(variant, tensors[1:], tensors[0], log_reach, TREE_OF_ROUTER, TREES),
        [logits.requires_grad_(), *(p.requires_grad_() for p in projections)],
    )


def test_nt_xent_has_any_number_of_leading_axes():
    z = torch.randn(2, 3, 2 * N, FEATURES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = nt_xent(z, 0.5)
    assert found.shape == (2, 3, 2 * N)
    torch.testing.assert_close(found[1, 2], torch.stack(pair_losses(z[1, 2], 0.5)))
    torch.testing.assert_close(nt_xent(z[1, 2], 0.5), found[1, 2])
    torch.testing.assert_close(nt_xent(7 * z, 0.5), found)  # only directions count


def test_one_pair_alone_has_nothing_to_lose():
    z = torch.randn(2, FEATURES, generator=torch.Generator().manual_seed(0))
    assert (nt_xent(z, 0.5) == 0).all()


@pytest.mark.parametrize("variant", list(LOOPS))
@pytest.mark.parametrize("sign", ["right", "left", "mixed", "opposed"])
def test_sure_routers_stay_finite(variant, sign):
    signs = {
        "right": torch.ones(2 * N),
        "left": -torch.ones(2 * N),
        "mixed": torch.tensor([1.0, -1.0]).repeat(N),
        "opposed": torch.tensor([1.0, -1.0]).repeat_interleave(N),
    }
    for size in (40.0, 400.0):
        logits = (size * signs[sign]).expand(len(TREE_OF_ROUTER), -1).clone().requires_grad_()
        loss = contrast(variant, None, logits, torch.zeros_like(logits), TREE_OF_ROUTER, TREES)
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        assert torch.isfinite(loss).all()
        assert torch.isfinite(gradient).all()


def test_sure_routers_have_the_values_of_the_limit():
    """All to one side: rows are equal, so a pair is one of 2N - 1; sides that differ in the two views: log 2 apart."""
    one_way = torch.full((1, 2 * N), 40.0)
    flat, only = torch.zeros(1, 2 * N), torch.zeros(1, dtype=torch.long)
    assert contrast("routers", None, one_way, flat, only, 1)[1].item() == pytest.approx(math.log(2 * N - 1))
    assert contrast("jensen_shannon", None, one_way, flat, only, 1)[1].item() == pytest.approx(0, abs=1e-6)
    opposed = torch.cat((one_way[:, :N], -one_way[:, N:]), 1)
    assert contrast("jensen_shannon", None, opposed, flat, only, 1)[1].item() == pytest.approx(math.log(2))
    balanced = torch.tensor([40.0, -40.0] * (N - 1)).repeat(2)[None]
    flat = torch.zeros_like(balanced)
    best = math.log(math.e + 2) - 1 - 2 * math.log(2)  # a pair alike, the other side at right angles, entropy full
    assert contrast("transposed", None, balanced, flat, only, 1)[1].item() == pytest.approx(best)


@pytest.mark.parametrize("variant", list(LOOPS))
def test_a_tiny_reach_weighs_like_any_other(variant, given):
    """Reach 1e-30 at a whole node, whose squares are 0 in float32, and 1e-30 for one sample among others."""
    projections, logits, log_reach = leaves(*given, dtype=torch.float32)
    plain = contrast(variant, projections, logits, log_reach, TREE_OF_ROUTER, TREES)
    tiny = contrast(variant, projections, logits, log_reach + math.log(1e-30), TREE_OF_ROUTER, TREES)
    torch.testing.assert_close(tiny, plain, atol=1e-4, rtol=1e-4)
    assert all(torch.isfinite(g).all() for g in gradients(tiny, projections, logits))

    uneven = log_reach.detach().clone()
    uneven[:, 1::2] = math.log(1e-30)
    found = contrast(variant, projections, logits, uneven, TREE_OF_ROUTER, TREES)
    assert torch.isfinite(found).all()
    assert all(torch.isfinite(g).all() for g in gradients(found, projections, logits))


def test_a_diverged_tree_keeps_it_to_itself(given):
    projections, logits, log_reach = given
    logits = logits.clone()
    logits[1] = math.nan  # of tree 2
    found = contrast("both", projections, logits, log_reach, TREE_OF_ROUTER, TREES)
    assert torch.isfinite(found).tolist() == [[True, True, True], [True, True, False]]


def test_an_unknown_variant_is_refused(given):
    with pytest.raises(ValueError, match=r"variant 'A' is none of .* choose one of \('both'"):
        contrast("A", *given, TREE_OF_ROUTER, TREES)
