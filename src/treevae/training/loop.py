"""The training loop of all models: epochs of steps, for one run or several side by side."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import DivergedError
from .engine import Noise, Stepper, mixed
from .objectives import ElboObjective, Objective
from .plan import Stage
from .samples import Ahead, Samples

ORDER, EVALUATION = -1, -2  # what a seed is mixed with for other things than a step's noise
OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory", re.IGNORECASE)  # torch on a GPU, torch on a CPU
PAUSE = 0.1  # seconds between pauses of the loop, in which its state may be saved


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was not enough memory."""
    return isinstance(error, MemoryError) or bool(OUT_OF_MEMORY.search(str(error)))


@dataclass(frozen=True)
class EpochDone:
    """A run has ended an epoch, from 0; ``means`` are of the loss's terms. ``last``: it has ended the training."""

    run: int
    epoch: int
    means: dict[str, float]
    last: bool


class Training:
    """A stage, or a part of one, in progress.

    Runs of a stage may have different numbers of samples, so that their epochs have different numbers of steps: each
    keeps its own time. One that has ended the stage is carried along, at a learning rate of 0, until all have.

    Parameters
    ----------
    objective : Objective
        What is minimised.
    samples : Samples
        Where they come from.
    stage : Stage
        For how long, and with which weights.
    batch_size : int
        Samples in a step, each in as many views as the objective has. A last short batch is dropped.
    seeds : sequence of int
        One for each run.
    fast : bool
        Whether products on a GPU may be rounded for speed.
    part : (int, int), optional
        The epochs of the stage that are trained: from the first until before the second; by default all.
    """

    def __init__(
        self,
        objective: Objective,
        samples: Samples,
        stage: Stage,
        batch_size: int,
        seeds: Sequence[int],
        fast: bool = True,
        part: tuple[int, int] | None = None,
    ) -> None:
        self._first, self._last = part or (0, stage.epochs)
        self.objective, self.stage, self.seeds = objective, stage, list(seeds)
        self._batch_size = min(batch_size, *objective.n_samples)
        self._steps = [n // self._batch_size for n in objective.n_samples]  # of an epoch
        self.epoch, self.step = [self._first] * len(self.seeds), [0] * len(self.seeds)
        self._window = samples.window(objective.n_derived * len(self.seeds), self._batch_size)
        if self._window is None:
            objective.hold_all()
        else:
            self._window = min(self._window, self._steps[0] * self._batch_size)
            if len(self.seeds) > 1:  # a state saved where more memory was free
                raise RuntimeError(
                    f"{len(self.seeds)} runs side by side need more of the device's memory than is free now"
                )
            self._ahead = Ahead(samples)
        self._stepper = Stepper(objective, self._batch_size, seeds, stage.weight_decay, fast)

    def run(self) -> Iterator[EpochDone | None]:
        """Train to the end; None is a pause, in which :meth:`state` may be asked for."""
        for run in range(len(self.seeds)):
            self._begin_epoch(run)
        paused = time.monotonic()
        while running := [run for run in range(len(self.seeds)) if not self._ended(run)]:
            self._step_until(paused + PAUSE)
            for run in range(len(self.seeds)):
                if self.step[run] == self._steps[run]:
                    self.step[run] = 0
                    if run in running:
                        yield self._end_epoch(run)
                    else:
                        self._begin_epoch(run)
            all_ended = all(self._ended(run) for run in range(len(self.seeds)))
            if time.monotonic() >= paused + PAUSE and not all_ended:  # their trees may have changed since
                yield None
                paused = time.monotonic()

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What :meth:`restore` needs, as JSON-able values and tensors."""
        about = {"seeds": self.seeds, "epoch": self.epoch, "step": self.step, "tick": self._stepper.tick}
        network = {f"network.{name}": value for name, value in self.objective.network.state_dict().items()}
        adam = {f"adam.{name}": value for name, value in self._stepper.adam.tensors().items()}
        remembered = {f"remembered.{name}": value for name, value in self.objective.remembered.items()}
        return about, network | adam | remembered | {"totals": self._stepper.totals}

    def restore(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Stand where another training of the same stage stood."""
        self.epoch, self.step = list(about["epoch"]), list(about["step"])
        n, epochs = len(self.seeds), [self._last] * len(self.seeds)
        for name, values, least, most in (
            ("epoch", self.epoch, self._first, epochs),
            ("step", self.step, 0, self._steps),
        ):
            bounds = zip(values, most, strict=False)
            if len(values) != n or not all(type(v) is int and least <= v <= m for v, m in bounds):
                raise ValueError(f"{name}={values!r} of a stage with {epochs} epochs of {self._steps} steps")
        self.objective.network.load_state_dict(below("network.", tensors))
        for name, value in self._stepper.adam.tensors().items():
            value.copy_(tensors[f"adam.{name}"])
        for name, value in self.objective.remembered.items():
            value.copy_(tensors[f"remembered.{name}"])
        self._stepper.totals.copy_(tensors["totals"])
        self._stepper.seek(int(about["tick"]))

    def _ended(self, run: int) -> bool:
        return self.epoch[run] == self._last

    def _trees(self, run: int) -> slice:
        candidates = self.objective.n_trees // len(self.seeds)
        return slice(run * candidates, (run + 1) * candidates)

    def _begin_epoch(self, run: int) -> None:
        """Set a run's weights and order for its present epoch, and go to its present step."""
        stepper, stage = self._stepper, self.stage
        if self._ended(run):
            stepper.adam.learning_rate[self._trees(run)] = 0
            stepper.cursor[run] = 0  # carried along on samples it has seen
            return
        stepper.adam.learning_rate[self._trees(run)] = stage.rate(self.epoch[run])
        stepper.kl_weight[self._trees(run)] = stage.kl_weight(self.epoch[run])
        for row, term in enumerate(self.objective.terms_beside):
            stepper.term_weights[row, self._trees(run)] = term.weight_in(self.epoch[run])
        n = self.objective.n_samples[run]
        device = stepper.order.device if self._window is None else torch.device("cpu")
        generator = torch.Generator(device).manual_seed(mixed(self.seeds[run], ORDER, self.epoch[run]))
        order = torch.randperm(n, generator=generator, device=device)
        if self._window is None:
            stepper.order[run, :n] = order
            stepper.cursor[run] = self.step[run] * self._batch_size
        else:
            self._order, self._held = order, -1
            stepper.order[run, : self._window] = torch.arange(self._window, device=stepper.order.device)

    def _step_until(self, moment: float) -> None:
        """Take steps until a run ends its epoch, a window of the samples is used up, or a moment has come."""
        left = min(steps - done for steps, done in zip(self._steps, self.step, strict=True))
        if self._window is not None:
            left = min(left, self._move_window())
        while left > 0:
            # a GPU works these off while the host goes on; the CPU looks at the clock after every step
            some = min(left, 64 if self._stepper.order.is_cuda else 1)
            self._stepper.steps(some)
            left -= some
            self.step = [done + some for done in self.step]
            if time.monotonic() >= moment:
                return

    def _move_window(self) -> int:
        """Hold the samples of the present step, if they are not held yet; how many steps they last."""
        assert self._window is not None
        per_window = self._window // self._batch_size
        wanted, within = divmod(self.step[0], per_window)
        if wanted != self._held:
            key = (self.epoch[0], wanted)
            index = self._indices(wanted)
            self.objective.hold(self._ahead.get(key, self.objective.rows(index)), index)
            self._held = wanted
            self._stepper.cursor[0] = within * self._batch_size
            if (wanted + 1) * per_window < self._steps[0]:
                self._ahead.prepare((self.epoch[0], wanted + 1), self.objective.rows(self._indices(wanted + 1)))
        return min(per_window - within, self._steps[0] - self.step[0])

    def _indices(self, window: int) -> Tensor:
        assert self._window is not None
        part = self._order[window * self._window : (window + 1) * self._window]
        fill = self._order[: self._window - len(part)]  # unseen: a captured step expects a window of one size
        return torch.cat([part, fill])

    def _end_epoch(self, run: int) -> EpochDone:
        """The means of a run's terms over its epoch; the next one is begun."""
        totals = self._stepper.totals[:, self._trees(run)]
        values = (totals.mean(1) / self._steps[run]).tolist()
        totals.zero_()
        means, epoch = dict(zip(self.objective.names, values, strict=True)), self.epoch[run]
        check_finite(means, self.stage, epoch, f" of run {run}" if len(self.seeds) > 1 else "")
        self.epoch[run] += 1
        self._begin_epoch(run)
        return EpochDone(run, epoch, means, self._ended(run))


def below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def check_finite(means: dict[str, float], stage: Stage, epoch: int, whose: str = "") -> None:
    """Raise if a mean is not a finite number."""
    if bad := {name: value for name, value in means.items() if not math.isfinite(value)}:
        listed = ", ".join(f"{name} = {value}" for name, value in bad.items())
        raise DivergedError(
            f"training{whose} diverged in stage '{stage.name}', epoch {epoch + 1} of {stage.epochs}: {listed}. "
            "Check the scale of the data, or lower the learning rate."
        )


@torch.no_grad()
def evaluate(objective: ElboObjective, samples: Samples, kl_weight: float, seed: int) -> Tensor:
    """The mean loss of each candidate of the one run over its samples, in eval mode: (tree,)."""
    objective.network.eval()
    (n,) = objective.n_samples
    total = torch.zeros((), device=samples.device)
    for i, part in enumerate(torch.arange(n).split(samples.chunk())):
        objective.hold(samples.rows(objective.rows(part)), part)
        noise = Noise([mixed(seed, EVALUATION)], objective.noise_rows, len(part), samples.device)
        noise.seek(i)
        terms = objective.terms(torch.arange(len(part), device=samples.device)[None], noise.draw()).elbo
        total = total + (kl_weight * terms.kl - terms.reconstruction).sum(-1)
    return total / n
