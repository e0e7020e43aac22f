"""The terms of the ELBO: posteriors and decisions with their KL, the log-likelihood, and all weighed by reach."""

# mypy: allow-untyped-defs

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from .. import cpu
from ..elbo import MIN_VARIANCE, Gaussian, kl_decision, kl_gaussian, precision_weighted
from .launch import BLOCK, cdiv, fused, kernel, power, tl

# ---------------------------------------------------------------------------------------------- functions of one number


@kernel()
def _log1p(e):
    """log(1 + e) for 0 <= e <= 1 to full precision, tiny e too: 2 artanh(e / (2 + e)) as a series."""
    s = e / (2.0 + e)
    t = s * s
    return 2.0 * s * (1.0 + t * (1 / 3 + t * (1 / 5 + t * (1 / 7 + t * (1 / 9 + t * (1 / 11 + t / 13))))))


@kernel()
def _softplus(x):
    return tl.maximum(x, 0.0) + _log1p(tl.exp(-tl.abs(x)))


@kernel()
def _sigmoid(x):
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, e) / (1.0 + e)


# ------------------------------------------------------------------------------------------------------------ posterior


@kernel()
def _head(head, row, batch, node_stride, batch_stride, column, here, L: tl.constexpr):
    at = head + (row // batch).to(tl.int64) * node_stride + (row % batch).to(tl.int64) * batch_stride + column
    return tl.load(at, mask=here, other=0.0), tl.load(at + L, mask=here, other=0.0)


@kernel("count", "batch", "q_node", "q_batch", "p_node", "p_batch")
def _posterior(
    q, p, noise, z, kl, dz, dkl, dq, dp, count, batch, q_node, q_batch, p_node, p_batch,
    BACKWARD: tl.constexpr, PRIOR: tl.constexpr, L: tl.constexpr, BR: tl.constexpr, BL: tl.constexpr,
    MIN: tl.constexpr = MIN_VARIANCE,
):  # fmt: skip
    """With a and b the variances of hat and prior, t their sum and d the difference of means:

    mu = (m_a b + m_p a) / t,  v = a b / t,  KL = sum(a/t + b d^2/t^2 - 1 + log t - log a) / 2,
    dmu/dm_a = b/t,  dmu/da = -b d/t^2,  dv/da = b^2/t^2,  dKL/dm_a = b d/t^2,  dKL/da = -b^2/(2 a t^2) - b d^2/t^3,
    dmu/dm_p = a/t,  dmu/db = a d/t^2,  dv/db = a^2/t^2,  dKL/dm_p = -b d/t^2,  dKL/db = (b + (a - b) d^2/t) / (2 t^2).
    """
    row = tl.program_id(0) * BR + tl.arange(0, BR)[:, None]
    column = tl.arange(0, BL)[None, :]
    here = (row < count) & (column < L)
    m_a, raw_a = _head(q, row, batch, q_node, q_batch, column, here, L)
    a = _softplus(raw_a) + MIN
    if PRIOR:
        m_p, raw_p = _head(p, row, batch, p_node, p_batch, column, here, L)
        b = _softplus(raw_p) + MIN
    else:
        m_p = tl.zeros((BR, BL), tl.float32)
        b = m_p + 1.0
    over = 1.0 / (a + b)
    of_a, of_b, u = a * over, b * over, (m_a - m_p) * over  # a/t, b/t, d/t
    at = row.to(tl.int64) * L + column
    epsilon = tl.load(noise + at, mask=here, other=0.0)
    sigma = tl.sqrt(a * of_b)
    if BACKWARD:
        g = tl.load(dz + at, mask=here, other=0.0)
        g_kl = tl.load(dkl + row, mask=row < count, other=0.0)
        g_v = g * epsilon / (2.0 * sigma)
        g_u = of_b * u
        g_a = -g * g_u + g_v * of_b * of_b - g_kl * of_b * (0.5 * of_b / a + u * u)
        to = dq + row.to(tl.int64) * (2 * L) + column
        tl.store(to, g * of_b + g_kl * g_u, mask=here)
        tl.store(to + L, g_a * _sigmoid(raw_a), mask=here)
        if PRIOR:
            g_b = g * of_a * u + g_v * of_a * of_a + g_kl * 0.5 * (of_b * over + (of_a - of_b) * u * u)
            to = dp + row.to(tl.int64) * (2 * L) + column
            tl.store(to, g * of_a - g_kl * g_u, mask=here)
            tl.store(to + L, g_b * _sigmoid(raw_p), mask=here)
    else:
        tl.store(z + at, m_a * of_b + m_p * of_a + sigma * epsilon, mask=here)
        each = of_a + b * u * u - 1.0 + tl.log(a + b) - tl.log(a)
        tl.store(kl + row, 0.5 * tl.sum(tl.where(here, each, 0.0), 1)[:, None], mask=row < count)


class _Posterior(Function):
    @staticmethod
    def launch(q, p, noise, *tensors, backward):
        n, b, latent = noise.shape
        wide, strides = power(latent, 1 << 16), (*q.stride()[:2], *(q if p is None else p).stride()[:2])
        rows = max(1, BLOCK // wide)
        _posterior[(cdiv(n * b, rows),)](
            q, q if p is None else p, noise, *tensors, n * b, b, *strides,
            BACKWARD=backward, PRIOR=p is not None, L=latent, BR=rows, BL=wide,
        )  # fmt: skip

    @staticmethod
    def forward(ctx, q, p, noise):
        z, kl = torch.empty_like(noise), noise.new_empty(noise.shape[:2])
        _Posterior.launch(q, p, noise, z, kl, z, kl, z, z, backward=False)
        ctx.save_for_backward(q, p, noise)
        return z, kl

    @staticmethod
    def backward(ctx, dz, dkl):
        q, p, noise = ctx.saved_tensors
        dz, dkl, dq = dz.contiguous(), dkl.contiguous(), q.new_empty(q.shape)
        dp = None if p is None else p.new_empty(p.shape)
        _Posterior.launch(q, p, noise, dz, dkl, dz, dkl, dq, dq if dp is None else dp, backward=True)
        return dq, dp, None


def posterior(head_q: Tensor, head_p: Tensor | None, noise: Tensor | None) -> tuple[Tensor, Tensor]:
    """A sample of the precision-weighted posterior, and its KL from the prior: (node, batch, latent), (node, batch).

    Heads are (node, batch, 2 latent), mean first and then the raw variance; without ``head_p`` the prior is N(0, I),
    without noise the sample is the mean.
    """
    if fused(head_q) and noise is not None:
        heads = (h if h is None or h.stride(-1) == 1 else h.contiguous() for h in (head_q, head_p))
        return _Posterior.apply(*heads, noise.contiguous())
    hat = Gaussian.from_head(head_q)
    prior = Gaussian.standard_like(hat) if head_p is None else Gaussian.from_head(head_p)
    q = precision_weighted(hat, prior)
    return q.mean if noise is None else q.sample(noise), kl_gaussian(q, prior)


# ------------------------------------------------------------------------------------------------------------ decisions


@kernel("count")
def _decisions_forward(logit_q, logit_p, log_p, kl, count, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    here = at < count
    q, p = tl.load(logit_q + at, mask=here, other=0.0), tl.load(logit_p + at, mask=here, other=0.0)
    left, right = -_softplus(q), -_softplus(-q)
    tl.store(log_p + at, left, mask=here)
    tl.store(log_p + count + at, right, mask=here)
    value = _sigmoid(q) * (right + _softplus(-p)) + _sigmoid(-q) * (left + _softplus(p))
    tl.store(kl + at, value, mask=here)


@kernel("count")
def _decisions_backward(logit_q, logit_p, dlog_p, dkl, dq, dp, count, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    here = at < count
    q, p = tl.load(logit_q + at, mask=here, other=0.0), tl.load(logit_p + at, mask=here, other=0.0)
    left, right = tl.load(dlog_p + at, mask=here, other=0.0), tl.load(dlog_p + count + at, mask=here, other=0.0)
    g = tl.load(dkl + at, mask=here, other=0.0)
    s, other = _sigmoid(q), _sigmoid(-q)
    tl.store(dq + at, right * other - left * s + g * s * other * (q - p), mask=here)
    tl.store(dp + at, g * (_sigmoid(p) - s), mask=here)


class _Decisions(Function):
    @staticmethod
    def forward(ctx, q, p):
        log_p, kl, count = q.new_empty(2 * len(q), q.shape[1]), torch.empty_like(q), q.numel()
        _decisions_forward[(cdiv(count, BLOCK),)](q, p, log_p, kl, count, SIZE=BLOCK)
        ctx.save_for_backward(q, p)
        return log_p, kl

    @staticmethod
    def backward(ctx, dlog_p, dkl):
        q, p = ctx.saved_tensors
        dq, dp, count = torch.empty_like(q), torch.empty_like(p), q.numel()
        launch = _decisions_backward[(cdiv(count, BLOCK),)]
        launch(q, p, dlog_p.contiguous(), dkl.contiguous(), dq, dp, count, SIZE=BLOCK)
        return dq, dp


def decisions(logit_q: Tensor, logit_p: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of going left at all routers, then right: (2 router, batch); and the KL: (router, batch)."""
    if fused(logit_q) and logit_q.numel():
        return _Decisions.apply(logit_q.contiguous(), logit_p.contiguous())
    return torch.cat([F.logsigmoid(-logit_q), F.logsigmoid(logit_q)]), kl_decision(logit_q, logit_p)


# ------------------------------------------------------------------------------------------------------------ bernoulli


@kernel("count", "batch")
def _log_bernoulli(
    x, output, run_of, log_px, g, doutput, count, batch,
    BACKWARD: tl.constexpr, FEATURES: tl.constexpr, BR: tl.constexpr, BF: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BR + tl.arange(0, BR)[:, None]
    run = tl.load(run_of + row // batch, mask=row < count, other=0).to(tl.int64)
    x += (run * batch + row % batch) * FEATURES
    output += row.to(tl.int64) * FEATURES
    doutput += row.to(tl.int64) * FEATURES
    if BACKWARD:
        gradient = tl.load(g + row, mask=row < count, other=0.0)
    total = tl.zeros((BR, BF), tl.float32)
    for first in range(0, FEATURES, BF):
        column = first + tl.arange(0, BF)[None, :]
        here = (row < count) & (column < FEATURES)
        value = tl.load(x + column, mask=here, other=0.0)
        logit = tl.load(output + column, mask=here, other=0.0)
        if BACKWARD:
            tl.store(doutput + column, gradient * (value - _sigmoid(logit)), mask=here)
        else:
            total += tl.where(here, value * logit - _softplus(logit), 0.0)
    if not BACKWARD:
        tl.store(log_px + row, tl.sum(total, 1)[:, None], mask=row < count)


class _FusedLogBernoulli(Function):
    @staticmethod
    def launch(x, output, run_of, log_px, g, doutput, backward):
        n, b, f = output.shape
        wide = power(f)
        launch = _log_bernoulli[(cdiv(n * b, BLOCK // wide),)]
        sizes = {"FEATURES": f, "BR": BLOCK // wide, "BF": wide}
        launch(x, output, run_of, log_px, g, doutput, n * b, b, BACKWARD=backward, **sizes)

    @staticmethod
    def forward(ctx, x, output, run_of):
        log_px = output.new_empty(output.shape[:2])
        _FusedLogBernoulli.launch(x, output, run_of, log_px, log_px, output, backward=False)
        ctx.save_for_backward(x, output, run_of)
        return log_px

    @staticmethod
    def backward(ctx, g):
        x, output, run_of = ctx.saved_tensors
        doutput = torch.empty_like(output)
        _FusedLogBernoulli.launch(x, output, run_of, g, g.contiguous(), doutput, backward=True)
        return None, doutput, None


def log_bernoulli(x: Tensor, output: Tensor, run_of: Tensor) -> Tensor:
    """Log-likelihood of Bernoulli logits ``output`` (node, batch, feature), without gradient for x: (node, batch).

    x is (run, batch, feature); node i explains the data of run ``run_of[i]``.
    """
    if fused(output):
        return _FusedLogBernoulli.apply(x.contiguous(), output.contiguous(), run_of)
    return cpu.log_bernoulli(x, output, run_of)


# ------------------------------------------------------------------------------------------------ the terms of the ELBO


@kernel("batch")
def _weigh(
    log_reach, kl, kl_router, log_px, table, terms, dterms, dlog_reach, dkl, dkl_router, dlog_px, batch,
    BACKWARD: tl.constexpr, WIDTH: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    tree, trees = tl.program_id(0), tl.num_programs(0)
    sample = tl.program_id(1) * BB + tl.arange(0, BB)[None, :]
    entry = table + tree * 4 * WIDTH + tl.arange(0, WIDTH)[:, None]
    node, router, leaf = tl.load(entry), tl.load(entry + WIDTH), tl.load(entry + 2 * WIDTH)
    root = tl.load(entry + 3 * WIDTH) == 1
    present = sample < batch
    at, at_router, at_leaf = node * batch + sample, router * batch + sample, leaf * batch + sample
    is_node, is_router, is_leaf = present & (node >= 0), present & (router >= 0), present & (leaf >= 0)
    reach = tl.where(is_node, tl.exp(tl.load(log_reach + at, mask=is_node, other=0.0)), 0.0)
    k = tl.load(kl + at, mask=is_node, other=0.0)
    k_router = tl.load(kl_router + at_router, mask=is_router, other=0.0)
    px = tl.load(log_px + at_leaf, mask=is_leaf, other=0.0)
    to = tree * batch + sample
    each = trees * batch
    if BACKWARD:
        g_px = tl.load(dterms + to, mask=present, other=0.0)
        g_root = tl.load(dterms + each + to, mask=present, other=0.0)
        g_node = tl.load(dterms + 2 * each + to, mask=present, other=0.0)
        g_router = tl.load(dterms + 3 * each + to, mask=present, other=0.0)
        g_kl = tl.where(root, g_root, g_node)
        tl.store(dlog_reach + at, reach * (g_px * px + g_kl * k + g_router * k_router), mask=is_node)
        tl.store(dkl + at, reach * g_kl, mask=is_node)
        tl.store(dkl_router + at_router, reach * g_router, mask=is_router)
        tl.store(dlog_px + at_leaf, reach * g_px, mask=is_leaf)
    else:
        tl.store(terms + to, tl.sum(reach * px, 0)[None, :], mask=present)
        tl.store(terms + each + to, tl.sum(tl.where(root, reach * k, 0.0), 0)[None, :], mask=present)
        tl.store(terms + 2 * each + to, tl.sum(tl.where(root, 0.0, reach * k), 0)[None, :], mask=present)
        tl.store(terms + 3 * each + to, tl.sum(reach * k_router, 0)[None, :], mask=present)


class _FusedWeigh(Function):
    @staticmethod
    def launch(inputs, table, terms, dterms, gradients, backward):
        (trees, _, width), b = table.shape, terms.shape[2]
        samples = max(16, BLOCK // width)
        sizes = {"WIDTH": width, "BB": samples, "num_warps": power(width * samples // 256, 16)}
        _weigh[(trees, cdiv(b, samples))](*inputs, table, terms, dterms, *gradients, b, BACKWARD=backward, **sizes)

    @staticmethod
    def forward(ctx, table, *inputs):
        terms = inputs[0].new_empty(4, len(table), inputs[0].shape[1])
        _FusedWeigh.launch(inputs, table, terms, terms, inputs, backward=False)
        ctx.save_for_backward(table, *inputs)
        return terms

    @staticmethod
    def backward(ctx, dterms):
        table, *inputs = ctx.saved_tensors
        gradients = [torch.empty_like(t) for t in inputs]
        _FusedWeigh.launch(inputs, table, dterms, dterms.contiguous(), gradients, backward=True)
        return None, *gradients


def weigh(log_reach: Tensor, kl: Tensor, kl_router: Tensor, log_px: Tensor, table: Tensor) -> Tensor:
    """The terms of the ELBO, (4, tree, batch): reconstruction, KL of the root, of the other nodes, of the decisions.

    ``table``, int32 of shape (tree, 4, width), lists the nodes of each tree, padded with -1 to a power of two: the
    node's row in ``log_reach`` and ``kl``; its row in ``kl_router`` or -1; its row in ``log_px`` or -1; 1 if it is
    the root. Every node is in exactly one tree.
    """
    if fused(log_reach):
        return _FusedWeigh.apply(table.contiguous(), *(t.contiguous() for t in (log_reach, kl, kl_router, log_px)))
    tree, place = (table[:, 0] >= 0).nonzero(as_tuple=True)
    node, router, leaf, root = table[tree, :, place].long().T
    reach = log_reach[node].exp()

    def total(chosen: Tensor, value: Tensor) -> Tensor:
        return reach.new_zeros(len(table), reach.shape[1]).index_add(0, tree[chosen], reach[chosen] * value)

    is_leaf, is_root, is_router = leaf >= 0, root == 1, router >= 0
    return torch.stack(
        [
            total(is_leaf, log_px[leaf[is_leaf]]),
            total(is_root, kl[node[is_root]]),
            total(~is_root, kl[node[~is_root]]),
            total(is_router, kl_router[router[is_router]]),
        ]
    )
