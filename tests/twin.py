"""The oracle: TreeVAE as a recursion over nodes, a plain torch module per node, closed forms from torch.distributions.

It is slow, obvious, and shares no line with the package but the reading of a stack's weights.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Normal, kl_divergence

from treevae.model.convolutions import Conv, ConvTransposed, Norm, Resampled, ResnetBlock
from treevae.model.module import TreeVAEModule
from treevae.model.networks import (
    CnnDecoder,
    CnnEncoder,
    DeepCnnDecoder,
    DeepCnnEncoder,
    Mlp,
    ResnetDecoder,
    ResnetEncoder,
)
from treevae.model.stack import Conv2d, ConvTranspose2d, Dense, Linear, NormLeaky


class Residual(nn.Module):
    """shortcut(x) + 0.1 residual(x), as in the public code's ResnetBlock."""

    def __init__(self, shortcut: nn.Module, residual: nn.Module) -> None:
        super().__init__()
        self.shortcut, self.residual = shortcut, residual

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + 0.1 * self.residual(x)


def plain(stack: nn.Module, row: int) -> nn.Module:
    """The network of one row of a stack, made of torch's own layers."""

    def copied(layer: nn.Module, **values: Tensor) -> nn.Module:
        for name, value in values.items():
            own = getattr(layer, name)
            own.data = torch.empty_like(own, dtype=value.dtype).copy_(value[row].detach().reshape(own.shape))
        return layer.to(next(stack.parameters()))

    def all_plain(layers: nn.Sequential) -> list[nn.Module]:
        return [plain(layer, row) for layer in layers]

    def norm(own: NormLeaky, layer: type) -> list[nn.Module]:
        values = {k: getattr(own, k) for k in ("weight", "bias", "running_mean", "running_var")}
        epsilon, momentum = own.defaults.norms
        return [copied(layer(own.weight.shape[1], epsilon, 1 - momentum), **values), nn.LeakyReLU(0.3)]

    match stack:
        case Linear():
            _, n_in, n_out = stack.weight.shape
            values = {"weight": stack.weight.transpose(1, 2)} | ({} if stack.bias is None else {"bias": stack.bias})
            return copied(nn.Linear(n_in, n_out, bias=stack.bias is not None), **values)
        case Dense():
            return nn.Sequential(plain(stack.linear, row), *norm(stack.norm, nn.BatchNorm1d))
        case Conv2d():
            _, n_out, n_in, *_ = stack.weight.shape
            conv = copied(nn.Conv2d(n_in, n_out, 3, stride=2, bias=False), weight=stack.weight)
            return nn.Sequential(conv, *norm(stack.norm, nn.BatchNorm2d))
        case ConvTranspose2d():
            _, n_in, n_out, *_ = stack.weight.shape
            pad, values = stack.padding, {"weight": stack.weight}
            values |= {} if stack.bias is None else {"bias": stack.bias}
            conv = nn.ConvTranspose2d(n_in, n_out, 3, 2, pad, pad, bias=stack.bias is not None)
            return nn.Sequential(copied(conv, **values), *(norm(stack.norm, nn.BatchNorm2d) if stack.norm else []))
        case Mlp():
            head = [] if stack.head is None else [plain(stack.head, row)]
            return nn.Sequential(*all_plain(stack.hidden), *head)
        case Conv():
            _, n_out, side, _, n_in = stack.weight.shape
            values = {"weight": stack.weight.permute(0, 1, 4, 2, 3)}
            values |= {} if stack.bias is None else {"bias": stack.bias}
            bias = stack.bias is not None
            return copied(nn.Conv2d(n_in, n_out, side, stack.stride, stack.padding, bias=bias), **values)
        case ConvTransposed():
            _, n_in, side, _, n_out = stack.weight.shape
            conv = nn.ConvTranspose2d(n_in, n_out, side, 2, output_padding=stack.extra, bias=False)
            return copied(conv, weight=stack.weight.permute(0, 1, 4, 2, 3))
        case Norm():
            return nn.Sequential(*norm(stack, nn.BatchNorm2d))
        case Resampled():
            new, old = (len(stack.rows), len(stack.columns)), (stack.rows.shape[1], stack.columns.shape[1])
            return nn.AvgPool2d(3, 2, 1) if new < old else nn.Upsample(new, mode="bilinear")
        case ResnetBlock():
            shortcut = nn.Identity() if stack.shortcut is None else plain(stack.shortcut, row)
            return Residual(shortcut, nn.Sequential(*all_plain(stack.residual)))
        case CnnEncoder() | DeepCnnEncoder() | ResnetEncoder():
            return nn.Sequential(nn.Unflatten(1, stack.shape), *all_plain(stack.layers), nn.Flatten())
        case CnnDecoder() | DeepCnnDecoder():
            start = plain(stack.dense, row), nn.Unflatten(1, stack.first)
            return nn.Sequential(*start, *all_plain(stack.layers), nn.Flatten())
        case ResnetDecoder():
            start = plain(stack.linear, row), nn.Unflatten(1, stack.first)
            return nn.Sequential(*start, *all_plain(stack.layers), nn.Flatten())
    raise TypeError(stack)


@dataclass
class Found:
    """What the recursion found below a node, per sample."""

    reconstruction: Tensor
    kl_nodes: Tensor
    kl_decisions: Tensor


class Twin:
    """A module's one tree, node by node, in the module's precision: float64 for an oracle."""

    def __init__(self, module: TreeVAEModule, tree_index: int = 0) -> None:
        self.arch, self.tree = module.arch, module.nodes.layout.trees[tree_index]
        self.encoder = plain(module.bottom_up.encoder, tree_index)
        self.steps = [plain(step, tree_index) for step in module.bottom_up.steps]
        self.nets = {
            kind: {key.node: plain(*row) for key, row in rows.items() if key.tree == tree_index}
            for kind, rows in module.nodes.rows().items()
        }
        self.train(module.training)

    def train(self, mode: bool) -> None:
        for net in (self.encoder, *self.steps, *(net for nets in self.nets.values() for net in nets.values())):
            net.train(mode)

    def parameters(self) -> list[nn.Parameter]:
        nets = (self.encoder, *self.steps, *(net for nets in self.nets.values() for net in nets.values()))
        return [parameter for net in nets for parameter in net.parameters()]

    def bottom_up(self, x: Tensor) -> list[Tensor]:
        d = [self.encoder(x)]
        for step in self.steps:
            d.insert(0, step(d[0]))
        return d

    def elbo(self, x: Tensor, noise: dict[int, Tensor], samples: int = 1) -> tuple[Tensor, Found]:
        """(KL of the root, all else below it), both per sample."""
        self.d, self.x, self.noise, self.samples = self.bottom_up(x), x, noise, samples
        q, p = self.posterior(0, None)
        return kl_divergence(q, p).sum(-1)[: len(x)], self.below(0, self.draw(0, q), torch.ones_like(x[:, 0]))

    def posterior(self, node: int, z_parent: Tensor | None) -> tuple[Normal, Normal]:
        mean, raw = self.nets["dense"][node](self.d[self.tree.depth(node)]).repeat(self.samples, 1).chunk(2, -1)
        precision = 1 / (nn.functional.softplus(raw) + 1e-7)
        if z_parent is None:
            p_mean, p_variance = torch.zeros_like(mean), torch.ones_like(mean)
        else:
            p_mean, p_raw = self.nets["transformation"][node](z_parent).chunk(2, -1)
            p_variance = nn.functional.softplus(p_raw) + 1e-7
        variance = 1 / (precision + 1 / p_variance)
        return Normal(variance * (mean * precision + p_mean / p_variance), variance.sqrt()), Normal(
            p_mean, p_variance.sqrt()
        )

    def draw(self, node: int, q: Normal) -> Tensor:
        return q.mean + q.stddev * self.noise[node]

    def average(self, values: Tensor) -> Tensor:
        return torch.stack(values.chunk(self.samples)).mean(0)

    def below(self, node: int, z: Tensor, reach: Tensor) -> Found:
        """What stands below a node whose z was drawn, each term weighted by its reach."""
        children = self.tree.children(node)
        zero = torch.zeros_like(reach)
        if not children:
            x = self.x.repeat(self.samples, 1)
            return Found(reach * self.average(self.log_prob(x, self.nets["decoder"][node](z))), zero, zero)
        branch, decisions = [torch.ones_like(reach)], zero
        if len(children) == 2:
            logit = self.nets["router_q"][node](self.d[self.tree.depth(node)]).squeeze(-1)
            prior = Bernoulli(logits=self.nets["router_p"][node](z).squeeze(-1))
            decisions = reach * self.average(kl_divergence(Bernoulli(logits=logit.repeat(self.samples)), prior))
            branch = [1 - logit.sigmoid(), logit.sigmoid()]
        found = Found(zero, zero, decisions)
        for child, probability in zip(children, branch, strict=True):
            q, p = self.posterior(child, z)
            under = self.below(child, self.draw(child, q), reach * probability)
            kl = reach * probability * self.average(kl_divergence(q, p).sum(-1))
            found = Found(
                found.reconstruction + under.reconstruction,
                found.kl_nodes + kl + under.kl_nodes,
                found.kl_decisions + under.kl_decisions,
            )
        return found

    def log_weight(self, x: Tensor, noise: dict[int, Tensor]) -> Tensor:
        """log of the importance weight of one draw, per sample: what a node adds, times the sum over its children."""
        self.d, self.x, self.noise, self.samples = self.bottom_up(x), x, noise, 1

        def at(node: int, z_parent: Tensor | None) -> Tensor:
            q, p = self.posterior(node, z_parent)
            z, children = self.draw(node, q), self.tree.children(node)
            ratio = (p.log_prob(z) - q.log_prob(z)).sum(-1)
            if not children:
                return ratio + self.log_prob(x, self.nets["decoder"][node](z))
            below = [at(child, z) for child in children]
            if len(children) == 1:
                return ratio + below[0]
            prior = Bernoulli(logits=self.nets["router_p"][node](z).squeeze(-1))
            turns = [prior.log_prob(torch.full_like(below[c], float(c))) for c in (0, 1)]
            return ratio + torch.logaddexp(below[0] + turns[0], below[1] + turns[1])

        return at(0, None)

    def log_prob(self, x: Tensor, output: Tensor) -> Tensor:
        if self.arch.likelihood == "bernoulli":
            return -nn.functional.binary_cross_entropy_with_logits(output, x, reduction="none").sum(-1)
        if self.arch.likelihood == "gaussian":
            return Normal(output, 1.0).log_prob(x).sum(-1)
        mean, raw = output.chunk(2, -1)
        return Normal(mean, (nn.functional.softplus(raw) + 1e-3).sqrt()).log_prob(x).sum(-1)
