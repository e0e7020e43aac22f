"""What is shown while something long runs: a bar in a terminal, lines in a log, nothing if not wanted."""

import re

import numpy as np
import pytest

from treevae import TreeVAE
from treevae.progress import LINES, Progress
from treevae.recipes import PAPER
from treevae.training.events import CandidatesCompared, EpochEnded, LeafChosen
from treevae.training.plan import Plan, Work

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # so few epochs
X = np.random.default_rng(0).random((120, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch):
    """Whatever the variables by which rich is told that it has one."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def fit(verbose: bool) -> None:
    TreeVAE(3, epochs=6, n_init=1, hidden_dim=8, random_state=0, device="cpu", verbose=verbose, **PAPER).fit(X)


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
    now = iter([100.0, 110.0, 120.0])
    monkeypatch.setattr("treevae.progress.time.monotonic", lambda: next(now))
    with Progress(True) as progress:
        progress.at(0.5, "here", "rec")
        progress.at(0.75, "there", "rec")
    assert capsys.readouterr().err.splitlines() == [
        " 50% done so far: here, rec",
        " 75% done, about 0:00:10 left: there, rec",
        "100% done",
    ]


def test_runs_that_have_not_told_yet_are_as_far_as_the_others(capsys):
    """Side by side and taken up again, they tell one after the other."""
    about = {"stage": "first tree", "leaf": None, "epoch": 9, "epochs": 10, "kl_weight": 0.0, "learning_rate": 0.1}
    terms = {"reconstruction": -1.0, "kl_root": 0.0, "kl_nodes": 0.0, "kl_decisions": 0.0}
    event = EpochEnded(**about, **terms, progress=0.6)
    with pytest.raises(KeyboardInterrupt), Progress(True, n_runs=3) as progress:  # noqa: PT012
        for run in range(3):
            progress.show(event, run)
        raise KeyboardInterrupt
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(" 60% done so far")


def test_leaves_too_small_to_count_are_told(capsys):
    """Else nobody knows why a tree is split that has the leaves asked for."""
    with Progress(True) as progress:
        progress.show(LeafChosen(3, 40, 0))
        progress.show(LeafChosen(5, 30, 2))
    assert capsys.readouterr().err.splitlines() == [
        "  splitting node 3, 40 samples",
        "  splitting node 5, 30 samples; leaves with too few samples to count: 2",
    ]


def test_who_is_left_in_a_race_is_told(capsys):
    same = {"leaf": 1, "losses": (1.0, 2.0, 3.0), "smaller_shares": (0.5,) * 3, "unsure": (0.1,) * 3, "chosen": 0}
    with Progress(True) as progress:
        progress.show(CandidatesCompared(**same, kept=(0, 1)))
        progress.show(CandidatesCompared(**same))
    assert capsys.readouterr().err.splitlines() == ["  kept 2 of 3 candidates", "  kept candidate 1 of 3"]


def test_all_is_done_at_the_end_and_not_before(capsys):
    plan = Plan.paper(epochs=10, n_leaves=3)
    work = Work(plan, None)
    assert work.add(1e9) < 1  # a tree may take more splits than were planned
    fit(verbose=True)
    *before, last = [line for line in capsys.readouterr().err.splitlines() if "done" in line]
    assert last == "100% done"
    assert not any("100%" in line for line in before)
