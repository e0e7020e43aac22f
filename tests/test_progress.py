"""What is shown while something long runs: a bar in a terminal, lines in a log, nothing if not wanted."""

import re

import numpy as np
import pytest

from treevae import TreeVAE
from treevae.progress import LINES, Progress

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # so few epochs
X = np.random.default_rng(0).random((120, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch):
    """Whatever the variables by which rich is told that it has one."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def fit(verbose: bool) -> None:
    TreeVAE(n_leaves=3, epochs=6, n_init=1, hidden_dim=8, random_state=0, device="cpu", verbose=verbose).fit(X)


def test_a_log_has_lines_and_no_bar(capsys):
    fit(verbose=True)
    out, err = capsys.readouterr()
    assert not out
    assert "\r" not in err
    assert "\x1b" not in err
    shares = [int(found) for found in re.findall(r"^ *(\d+)% done, about \d+:\d\d:\d\d left: .*, rec ", err, re.M)]
    assert shares == sorted(set(shares))
    assert 4 < len(shares) <= LINES
    assert re.match(r" *\d+% done so far: first tree, epoch 1/6, rec ", err)  # a sign of life
    assert "splitting node" in err
    assert "leaves: 3" in err


def test_nothing_is_shown_unless_wanted(capsys):
    fit(verbose=False)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_and_no_lines(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # which rich takes for one
    with Progress(True) as progress:
        for k in range(LINES + 1):
            progress.at(k / LINES, "somewhere", "rec -1.0")
        progress.say("a line that stays")
    err = capsys.readouterr().err
    assert "100%" in err
    assert "% done" not in err
    assert "a line that stays" in err


def test_time_left_is_that_of_the_work_seen(capsys, monkeypatch):
    """A fit that goes on from its state has done its first half in no time."""
    now = iter([100.0, 110.0])
    monkeypatch.setattr("treevae.progress.time.monotonic", lambda: next(now))
    with Progress(True) as progress:
        progress.at(0.5, "here", "rec")
        progress.at(0.75, "there", "rec")
    assert capsys.readouterr().err.splitlines() == [
        " 50% done so far: here, rec",
        " 75% done, about 0:00:10 left: there, rec",
    ]
