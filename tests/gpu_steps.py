"""Small networks and samples on a GPU, and graphs captured of a call."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from treevae.model.networks import Architecture
from treevae.training.plan import Stage
from treevae.training.samples import Samples

GPU = torch.device("cuda")
SMALL = Architecture((1, 28, 28), "cnn", "bernoulli", (4,) * 4, (32,) * 3)
STAGE = Stage("s", 2, kl_step=0.1, learning_rate=1e-3, drop_after=1)


def samples(n: int = 640, budget: int | None = None) -> Samples:
    x = torch.rand(n, 784, generator=torch.Generator().manual_seed(1))
    return Samples(x, GPU, budget)


def weights(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten().double().cpu() for value in network.state_dict().values()])


def graphed(run):
    """The outputs of a call that a graph was captured of, filled anew by every replay, and the graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run()
    return outputs, graph


@contextmanager
def single_precision() -> Iterator[None]:
    """Inside, convolutions are in float32 and not in TF32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before
