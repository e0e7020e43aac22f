"""What there is to see at the moment: the explorer of a fitted model, or a run in training that becomes one."""

from __future__ import annotations

import gzip
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..page.report import page, policy
from ..run import Run
from .answers import Explorer
from .messages import Status
from .watching import look, shape_of

if TYPE_CHECKING:
    from ..estimator import TreeVAE
    from ..subject import Subject

LOOK_EVERY = 1.0  # seconds between two looks at a run in training
SELF = "'self'"
log = logging.getLogger("treevae")


@dataclass(frozen=True)
class Packed:
    """An answer that is the same for everybody, ready to be sent plain or packed."""

    body: bytes
    media_type: str
    policy: str | None = None  # the Content-Security-Policy of a page

    @cached_property
    def packed(self) -> bytes:
        """The body in gzip."""
        return gzip.compress(self.body, 6)

    @classmethod
    def html(cls, text: str) -> Packed:
        """A page that may run the scripts it holds and no others, and ask nobody but this server."""
        framed = "frame-ancestors 'none'"  # which a page cannot say of itself
        return cls(text.encode(), "text/html; charset=utf-8", f"{policy(text, SELF)}; {framed}")


@dataclass(frozen=True)
class Ready:
    """A fitted model with its page."""

    explorer: Explorer
    page: Packed
    bundle: Packed
    status: Status

    @classmethod
    def of_subject(cls, model: TreeVAE, subject: Subject, **how: Any) -> Ready:
        """The page of a model and the samples it is shown with; ``how`` are further arguments of ``snapshot``."""
        bundle = subject.snapshot(model, **how).bundle
        return cls.of(Explorer(model, subject.X, bundle, subject.names, subject.vectorize), bundle)

    @classmethod
    def of(cls, explorer: Explorer, bundle: dict[str, Any]) -> Ready:
        """The page of a bundle, alive."""
        live = bundle | {"live": True, "accepts": explorer.accepts}
        text = json.dumps(live, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
        status = Status(state="ready", title=live["title"], tree=shape_of(explorer.tree))
        ready = cls(explorer, Packed.html(page(live)), Packed(text.encode(), "application/json"), status)
        for part in (ready.page, ready.bundle):
            len(part.packed)  # packed once, before anybody waits for it
        return ready


class Site:
    """What the server shows; ``ready`` is None until there is a model."""

    def __init__(self, ready: Ready | None, status: Status) -> None:
        self.ready, self.status = ready, status

    @property
    def page(self) -> Packed:
        """What stands at the address itself."""
        return self.ready.page if self.ready is not None else watch_page()


class Watch(threading.Thread):
    """Looks at a run in training until it ends, and then prepares its explorer.

    Parameters
    ----------
    site : Site
        Where to show what is seen.
    run : Run
        The run.
    prepare : callable
        Makes the explorer of the finished run.
    """

    def __init__(self, site: Site, run: Run, prepare: Callable[[], Ready]) -> None:
        super().__init__(name="treevae-watch", daemon=True)
        self._site, self._run, self._prepare = site, run, prepare
        self._ended = threading.Event()

    def run(self) -> None:
        """Look until the run has ended."""
        while not self._ended.wait(LOOK_EVERY):
            if self._run.is_finished:
                self._show_model()
                return
            self.look()

    def look(self) -> None:
        """Show how far the run has come."""
        try:
            tree, growing = look(self._run)
        except ValueError as error:
            log.warning("%s", error)
            return
        if growing.saves != getattr(self._site.status.growing, "saves", None):
            self._site.status = Status(state="training", title=self._site.status.title, tree=tree, growing=growing)

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()

    def _show_model(self) -> None:
        before = self._site.status
        self._site.status = before.model_copy(update={"state": "preparing"})
        try:
            ready = self._prepare()
        except Exception as error:  # nobody else would hear of it; the page says it
            log.warning("the model of %s cannot be shown: %s", self._run.path, error)
            self._site.status = before.model_copy(update={"state": "failed", "error": str(error)})
            return
        self._site.ready = ready
        self._site.status = ready.status


@cache
def watch_page() -> Packed:
    """The page of a run in training."""
    return Packed.html((files("treevae.serve") / "watch.html").read_text(encoding="utf-8"))
