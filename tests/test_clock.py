"""When to save."""

import pytest
from numbered_states import read_only, save

from treevae.storage import tensors as checkpoint
from treevae.storage.clock import Every
from treevae.storage.states import StateFolder


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_save_is_due_after_so_many_seconds():
    clock = Clock()
    every = Every(30, clock=clock)
    assert not every.due()
    clock.now += 29.9
    assert not every.due()
    clock.now += 0.2
    assert every.due()
    with every.measured():
        clock.now += 0.1
    assert not every.due()
    clock.now += 29.9
    assert not every.due()  # counted from the end of the save
    clock.now += 0.2
    assert every.due()


def test_slow_saves_are_rarer():
    clock = Clock()
    every = Every(30, clock=clock)
    saving, began = 0.0, clock.now
    for _ in range(100_000):
        clock.now += 0.5
        if every.due():
            with every.measured():
                clock.now += 7
                saving += 7
    assert 0.019 < saving / (clock.now - began) <= 0.02
    with every.measured():
        clock.now += 0.01
    clock.now += 31
    assert every.due()  # fast again


def test_saves_that_fail_count_too(tmp_path, monkeypatch):
    clock = Clock()
    with StateFolder(tmp_path, Every(10, clock=clock)) as folder:
        clock.now += 11
        assert folder.due()
        monkeypatch.setattr(checkpoint, "open", read_only, raising=False)
        with pytest.raises(OSError, match="Read-only"):
            save(folder, 1)
        assert not folder.due()
        monkeypatch.undo()
        clock.now += 11
        assert folder.due()
        save(folder, 1)
        assert not folder.due()


def test_every_refuses_what_makes_no_sense():
    for seconds in (-1, float("nan")):
        with pytest.raises(ValueError, match="seconds="):
            Every(seconds)
    with pytest.raises(ValueError, match="share="):
        Every(1, 0)
