"""The paper's tables as commands: list, run and show."""

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from cells import SCALE, cell_of, fabricate, small, treevae, whole_record

from treevae import Tree, TreeVAE
from treevae.experiments.cells import Job
from treevae.experiments.running import coverage_of, wanted
from treevae.experiments.store import Store
from treevae.experiments.tables import TABLES


def test_the_commands_from_list_to_show(tmp_path, tiny):
    options = ("--seeds", 2, "--scale", SCALE, "--results", tmp_path)
    said = treevae("paper", "run", "tiny", "--method", "agg", *options)
    assert "Cells: 2, there already: 0." in said
    assert said.count("done: digits-agg") == 2
    kept = json.loads(next(Store(tmp_path).records.glob("digits-agg-*.json")).read_text())
    assert kept["command"] == f"treevae paper run tiny --method agg --seeds 2 --scale {SCALE} --root DATA"  # no paths
    said = treevae("paper", "run", "tiny", *options, "--device", "cpu")
    assert "Cells: 4, there already: 2." in said
    assert said.count("done: ") == 2
    assert f"Cells in {tmp_path}: all 4." in said
    said = treevae("paper", "run", "tiny", *options)
    assert "Cells: 4, there already: 4." in said
    assert "done: " not in said
    text = treevae("paper", "show", "tiny", "--scale", SCALE, "--results", tmp_path)
    assert len(re.findall(r"\d   \(0\.0 ± 0\.0\)", text)) == 2
    assert "not run" not in text
    said = treevae("paper", "show", "tiny", "--results", tmp_path)
    assert "not run" in said.split("TreeVAE")[1].splitlines()[0]
    hint = "Nothing is recorded at scale 1, but at others: treevae paper show tiny"
    assert f"{hint} --scale {SCALE} --results {tmp_path}" in said
    assert "Nothing is recorded" not in text


def test_some_rows_are_shown_and_the_written_table_stays_whole(tmp_path, tiny):
    options = ("--scale", SCALE, "--results", tmp_path)
    treevae("paper", "run", "tiny", "--method", "agg", "--seeds", 1, *options)
    treevae("paper", "show", "tiny", *options)
    whole = {path: path.read_text() for path in (tmp_path / "tables").iterdir()}
    said = treevae("paper", "show", "tiny", "--method", "agg", "--data", "digits", *options)
    assert "Ward" in said
    assert "TreeVAE" not in said
    assert "Wrote" not in said
    said = treevae("paper", "show", "tiny", "--method", "agg", *options)
    assert "No file was written, as these are some rows" in said
    said = treevae("paper", "show", "tiny", "--method", "agg", "--markdown", tmp_path / "some.md", *options)
    assert said.splitlines()[-1] == f"Wrote {tmp_path / 'some.md'}"
    for option in ("--markdown", "--latex"):
        said = treevae("paper", "show", "tiny", option, tmp_path / "none" / "some", *options, code=1)
        assert said == f"Error: there is no folder {tmp_path / 'none'} to write some into; make it first\n"
    assert "TreeVAE" not in (tmp_path / "some.md").read_text()
    assert {path: path.read_text() for path in (tmp_path / "tables").iterdir()} == whole
    assert "no method 'som' in the table tiny" in treevae("paper", "show", "tiny", "--method", "som", *options, code=1)


def test_list_counts_as_many_seeds_as_are_wanted():
    records = Path(__file__).parents[1] / "results"
    said = treevae("paper", "list", "--seeds", 2, "--results", records)
    (row,) = [line for line in said.splitlines() if line.startswith("digits ")]
    assert row.split()[1:4] == ["12", "of", "12"]


@pytest.mark.parametrize("method", ["treevae", "deepect"])
def test_run_says_what_goes_on(method, tmp_path, monkeypatch):
    def interrupt(self, event, run):
        raise KeyboardInterrupt

    options = ("--method", method, "--seeds", 1, "--scale", 0.01, "--results", tmp_path, "--device", "cpu")
    with monkeypatch.context() as patch:
        patch.setattr("treevae.progress.Progress.show", interrupt)
        said = treevae("paper", "run", "digits", *options, code=130)
    assert "Begun earlier" not in said
    assert said.splitlines()[-1].endswith("the same command goes on from here.")
    said = treevae("paper", "run", "digits", *options)
    assert f"Begun earlier, and goes on from its state: digits-{method}" in said
    assert f"Cells in {tmp_path}: all 1." in said


def test_a_reader_who_leaves_is_no_failed_fit(tmp_path, tiny, monkeypatch):
    """As in `treevae paper run … | head -1`."""
    echo = typer.echo

    def into_a_pipe(text="", **options):
        if text.startswith("fitting"):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        echo(text, **options)

    monkeypatch.setattr(typer, "echo", into_a_pipe)
    said = treevae("paper", "run", "tiny", "--method", "agg", "--scale", SCALE, "--results", tmp_path, code=1)
    assert said == f"Cells: 2, there already: 0. Records go into {tmp_path / 'records'}.\n"
    assert list(tmp_path.iterdir()) == []


def test_show_names_what_was_begun_and_is_not_finished(tmp_path, tiny):
    folder = Store(tmp_path).begin(Job((small(0), small(2))))
    assert "Begun" not in treevae("paper", "show", "tiny", "--scale", SCALE, "--results", tmp_path)  # no state yet
    (folder / "state-a.safetensors").touch()
    said = treevae("paper", "show", "tiny", "--scale", SCALE, "--results", tmp_path)
    command = f"paper run tiny --data digits --method treevae --seeds 3 --scale {SCALE} --results {tmp_path}"
    assert f"Begun and not finished: {folder.name}" in said
    assert command in said
    assert f"{command} --again" not in said
    assert "Begun" not in treevae("paper", "show", "tiny", "--results", tmp_path)  # of another scale
    assert "Begun" not in treevae("paper", "show", "digits", "--scale", SCALE, "--results", tmp_path)  # another table
    Store(tmp_path).finish(Job((small(0), small(2))))
    folder = Store(tmp_path).begin(Job((small(0), small(2)), {small(0).name: "0123abcd"}))
    (folder / "state-a.safetensors").touch()
    said = treevae("paper", "show", "tiny", "--scale", SCALE, "--results", tmp_path)
    assert f"{command} --again" in said
    (folder / "job.json").write_text("[")
    assert "cannot be read" in treevae("paper", "show", "tiny", "--scale", SCALE, "--results", tmp_path)


def test_list_counts_what_is_in_the_store(tmp_path):
    here = Store(tmp_path)
    here.write(cell_of(), whole_record())
    fabricate(here, cell_of(1), ACC=1.0)  # and nothing else
    rows = {
        line.split()[0]: line for line in treevae("paper", "list", "--results", tmp_path).splitlines() if " of " in line
    }
    assert rows["fixed-tree"].split()[1:4] == ["1", "of", "20"]
    assert rows["fixed-tree"].endswith("; 1 incomplete")
    assert rows["celeba-attributes"].split()[1:4] == ["0", "of", "1"]
    assert "incomplete" not in rows["celeba-attributes"]


def test_a_record_without_a_score_of_the_table_is_named_and_fitted_anew_if_asked(tmp_path, tiny):
    here, options = Store(tmp_path), ("--method", "agg", "--scale", SCALE, "--results", tmp_path)
    old = cell_of(data="digits", method="agg", scale=SCALE, n_leaves=4)
    here.write(old, {"scores_percent": {"ACC": 1.0}})
    here.write(replace(old, settings={"n_leaves": 10}), {"scores_percent": {"ACC": 2.0}})
    content = here.path(old).read_bytes()
    said = treevae("paper", "run", "tiny", *options)
    assert "Cells: 2, there already: 1." in said
    assert "There without a score of this table, and left so: 1; --again" in said
    assert f"Cells in {tmp_path}: 1 of 2." in said
    assert "done: " not in said
    shown = treevae("paper", "show", "tiny", *options[2:])
    rows = "--data digits --method agg --seeds 1"
    command = f"treevae paper run tiny {rows} --scale {SCALE} --again"  # without a folder: it is written into tables
    assert f"Digits: Ward, seed 0: recorded without a score of this table; to fit anew: {command}." in shown
    assert f"To the commands above add: --results {tmp_path}\n" in shown
    assert f"treevae paper run TABLE --scale {SCALE} --results {tmp_path} --again" in treevae(
        "paper", "list", *options[2:]
    )
    said = treevae("paper", "run", "tiny", *options, "--again")
    assert "To the commands above" not in treevae("paper", "show", "tiny", *options[2:])
    assert said.count("done: ") == 1
    assert f"the record before is kept as {tmp_path / 'aside' / old.name}-1.json" in said
    assert f"Cells in {tmp_path}: all 2." in said
    assert (tmp_path / "aside" / f"{old.name}-1.json").read_bytes() == content
    assert here.read(old)["scores_percent"]["DP"] > 0
    said = treevae("paper", "run", "tiny", *options, "--again")
    assert "Cells: 2, there already: 2." in said
    assert "done: " not in said


@pytest.mark.parametrize("fault", ["a fit that fails", "an interrupt", "a damaged job"])
def test_fitting_anew_costs_no_record_where_it_does_not_end(tmp_path, tiny, monkeypatch, fault):
    def fail(*arguments, **options):
        raise KeyboardInterrupt if fault == "an interrupt" else MemoryError

    here, options = Store(tmp_path), ("--method", "agg", "--scale", SCALE, "--results", tmp_path, "--again")
    path = here.write(cell_of(data="digits", method="agg", scale=SCALE), {"scores_percent": {"DP": 1.0}}).path
    content = path.read_bytes()
    if fault == "a damaged job":
        (tmp_path / "running" / "x").mkdir(parents=True)
        (tmp_path / "running" / "x" / "state-a.safetensors").touch()
        (tmp_path / "running" / "x" / "job.json").write_text("[")
    else:
        monkeypatch.setattr("treevae.baselines.ward.Ward.fit", fail)
    treevae("paper", "run", "tiny", *options, code=130 if fault == "an interrupt" else 1)
    assert path.read_bytes() == content
    assert not (tmp_path / "aside").exists()


def test_what_a_method_never_gives_makes_no_record_incomplete(tmp_path):
    Store(tmp_path).write(cell_of(method="hdbscan"), {"scores_percent": {"LP": 1.0, "ACC": 2.0, "NMI": 3.0}})
    assert len(coverage_of(Store(tmp_path), wanted(TABLES["clustering"], 1, 1.0, ["fashion"], ["hdbscan"])).there) == 1
    text = treevae("paper", "show", "clustering", "--results", tmp_path)
    (row,) = [line for line in text.splitlines() if line.startswith("Fashion") and " HDBSCAN " in line]
    assert row.split()[:5] == ["Fashion", "HDBSCAN", "1", "–", "(–)"]


def test_the_next_command_finds_what_this_one_wrote(tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for options, same in (
        (("--scale", 0.1234567), " --scale 0.1234567"),
        (("--scale", SCALE, "--results", "there"), f" --scale {SCALE} --results there"),
        ((), ""),
    ):
        said = treevae("paper", "run", "tiny", "--method", "agg", *options)
        (hinted,) = re.findall(r"Next: treevae (paper show tiny.*)", said)
        assert hinted == f"paper show tiny{same}"
        (row,) = [line for line in treevae(*hinted.split()).splitlines() if " Ward " in line]
        assert "not run" not in row
        last = treevae("paper", "list", *options).splitlines()[-1]
        assert last == f"Next: treevae paper run TABLE{same}, then: treevae paper show TABLE{same}"


def test_list_says_where_records_may_be_if_there_are_none_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hint = "There is no folder paper-results here: if there are records elsewhere, name theirs with --results."
    assert hint in treevae("paper", "list")
    (tmp_path / "paper-results").mkdir()
    assert "There is no folder" not in treevae("paper", "list")


def test_the_users_store_is_written_into_and_read_and_a_clones_own_is_read_without_it(tmp_path, tiny, monkeypatch):
    """In a clone, whose folder results is an archive."""
    monkeypatch.chdir(tmp_path)
    archive, cell, show = Store("results"), cell_of(data="digits", method="agg", n_leaves=4), ("paper", "show", "tiny")
    fabricate(archive, cell, DP=12.3)
    before = archive.path(cell).read_bytes()
    said = treevae(*show)
    assert "12.3" in said
    assert "To the commands above" not in said
    listed = treevae("paper", "list")
    assert "Records in results, scale 1" in listed
    assert listed.endswith("Next: treevae paper run TABLE, then: treevae paper show TABLE\n")
    said = treevae("paper", "run", "tiny", "--method", "agg")
    assert f"Records go into {Path('paper-results', 'records')}." in said
    assert [path.read_bytes() for path in archive.records.iterdir()] == [before]
    said = treevae(*show)
    assert "12.3" not in said
    assert said.endswith("The project's own records: treevae paper show tiny --results results\n")
    assert "12.3" in treevae(*show, "--results", "results")
    assert "The project's own records: treevae paper list --results results\n" in treevae("paper", "list")
    assert "The project's" not in treevae("paper", "list", "--results", "results")


@pytest.mark.parametrize("command", [("show", "tiny"), ("run", "tiny", "--method", "agg"), ("list",)])
@pytest.mark.parametrize("folder", ["tries", "results"])
def test_a_store_of_an_earlier_version_says_what_to_do(tmp_path, tiny, monkeypatch, command, folder):
    monkeypatch.chdir(tmp_path)
    cell = cell_of(data="digits", method="agg", n_leaves=4)
    fabricate(Store("new"), cell, DP=12.3)
    Path(folder).mkdir()
    record = Store("new").path(cell).rename(Path(folder, f"{cell.name}.json"))
    named = () if folder == "results" and command[0] != "run" else ("--results", folder)
    (line,) = treevae("paper", *command, *named, code=1).splitlines()
    where = f"the records in {folder} lie where earlier versions had them"
    assert line == f"Error: {where}: move {folder}/*.json into {folder}/records/"
    Path(folder, "records").mkdir()
    record.rename(Path(folder, "records", record.name))
    assert Store(folder).seeds(cell)[0]["scores_percent"] == {"DP": 12.3}
    if command[0] == "show":
        assert "12.3" in treevae("paper", *command, *named)


@pytest.mark.parametrize("command", [("show", "sizes"), ("list",)])
def test_a_folder_that_is_not_there_is_refused_and_not_made(command, tmp_path):
    (line,) = treevae("paper", *command, "--results", tmp_path / "resutls", code=1).splitlines()
    assert re.match(r"Error: there is no folder .*resutls: name that of the records with --results", line)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["file", "file/results"])
def test_a_store_that_cannot_be_written_is_said_once_before_anything_is_fitted(tmp_path, tiny, below):
    (tmp_path / "file").touch()
    (line,) = treevae("paper", "run", "tiny", "--results", tmp_path / below, code=1).splitlines()
    assert (
        line
        == f"Error: {tmp_path / 'file'} is a file, where a folder of records was to be; name another with --results"
    )


def test_a_store_without_room_is_said_once(tmp_path, tiny, monkeypatch):
    def full(**options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    (line,) = treevae("paper", "run", "tiny", "--results", tmp_path, code=1).splitlines()
    assert (
        line == f"Error: cannot write into the folder {tmp_path}: No space left on device; name another with --results"
    )


def test_a_root_that_is_not_there_is_said_once_where_it_is_needed(tmp_path):
    options = ("--method", "agg", "--seeds", 1, "--root", tmp_path / "nowhere", "--results", tmp_path / "r")
    (line,) = treevae(
        "paper", "run", "clustering", "--data", "mnist", "--data", "fashion", *options, code=1
    ).splitlines()
    why = f"Error: there is no folder {tmp_path / 'nowhere'}: name that of the data sets with --root, or"
    assert line == f"{why} fill it with: treevae data mnist fashion --root {tmp_path / 'nowhere'} --download"
    assert "all 1." in treevae("paper", "run", "digits", *options)  # they come with scikit-learn


def test_a_device_that_is_not_there_is_said_once(tmp_path, tiny):
    (line,) = treevae("paper", "run", "tiny", "--results", tmp_path, "--device", "tpu", code=1).splitlines()
    assert line.startswith("Error: --device tpu cannot be used")


def test_list_names_the_other_scales(tmp_path):
    Store(tmp_path).write(cell_of(scale=0.1), whole_record())
    hint = f"There are records of scale 0.1 too: treevae paper list --scale 0.1 --results {tmp_path}"
    assert hint in treevae("paper", "list", "--results", tmp_path)
    assert "There are records" not in treevae("paper", "list", "--scale", 0.1, "--results", tmp_path)


def test_run_says_what_is_fitted_and_records_beside_which_seeds(tmp_path, tiny):
    options = ("--method", "treevae", "--scale", SCALE, "--seeds", 2, "--results", tmp_path, "--device", "cpu")
    said = treevae("paper", "run", "tiny", *options)
    assert re.search(r"^fitting digits-treevae-.*, seeds 0, 1 \(1 of 1\)$", said, re.MULTILINE)
    assert Store(tmp_path).read(small(1))["fitted_with_seeds"] == [0, 1]


def test_interrupting_the_command_says_how_to_go_on(tmp_path, tiny, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(TreeVAE, "fit_seeds", interrupt)
    said = treevae("paper", "run", "tiny", "--method", "treevae", "--results", tmp_path, code=130)
    assert "No record is lost: the same command goes on from here." in said
    with monkeypatch.context() as patch:
        patch.setattr("treevae.baselines.ward.Ward.fit", interrupt)
        said = treevae("paper", "run", "tiny", "--method", "agg", "--results", tmp_path, code=130)
    assert "goes on from here, but a fit of agg starts anew." in said
    assert list(tmp_path.iterdir()) == []  # no folder of a fit without a state


def test_a_fit_that_fails_is_named_and_the_command_says_so_at_the_end(tmp_path, tiny, monkeypatch):
    with monkeypatch.context() as patch:
        patch.delattr("treevae.baselines.ward.Ward.fit")
        said = treevae("paper", "run", "tiny", "--method", "agg", "--results", tmp_path, code=1)
    assert "failed: digits-agg-n_leaves=4, seed 0: AttributeError: " in said
    assert "Error: 2 of 2 fits failed" in said


def test_data_that_are_not_there_are_said_once(tmp_path, monkeypatch):
    monkeypatch.delenv("TREEVAE_DATA", raising=False)
    both = ("--data", "mnist", "--data", "fashion")
    said = treevae("paper", "run", "clustering", *both, "--method", "agg", "--results", tmp_path, code=1)
    assert said.count("no folder of data sets is named") == 1  # and not once for each fit or set
    assert "no data: mnist, fashion: " in said
    assert "Cells not fitted for want of data: 4." in said
    options = ("--method", "agg", "--results", tmp_path, "--root", tmp_path)
    said = treevae("paper", "run", "clustering", *options, "--data", "fashion", code=1)
    assert "no data: fashion: it is not below the folder of data sets; get it with: treevae data fashion" in said


def test_without_its_data_no_record_is_put_aside(tmp_path):
    path = Store(tmp_path).write(cell_of(), {}).path
    options = ("--method", "treevae", "--seeds", 1, "--results", tmp_path, "--root", tmp_path, "--again")
    assert "no data: fashion" in treevae("paper", "run", "generative", *options, "--data", "fashion", code=1)
    assert path.exists()


def test_the_first_try_needs_no_download(tmp_path, monkeypatch):
    monkeypatch.delenv("TREEVAE_DATA", raising=False)
    options = ("--seeds", 1, "--scale", 0.01, "--results", tmp_path, "--device", "cpu")
    said = treevae("paper", "run", "digits", *options)
    assert ": all 7. Next" in said
    for path in Store(tmp_path).records.glob("*.json"):
        found = json.loads(path.read_text())
        (line,) = [line for line in said.splitlines() if line.endswith(f" ({path.name})")]
        n = None if found.get("tree") is None else len(Tree.from_json(json.dumps(found["tree"])).leaves)
        assert (f", {n} of 10 leaves (" in line) == (n not in (None, 10))
    assert " of 10 leaves (" in said  # of some, in so few epochs
    assert "not run" not in treevae("paper", "show", "digits", *options[2:6])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("show", "table1"), "there is no table 'table1'; there are clustering"),
        (("run", "sizes", "--data", "mnist"), "there is no data set 'mnist' in the table sizes; there are fashion"),
        (("run", "sizes", "--method", "agg"), "there is no method 'agg' in the table sizes; there are treevae"),
        (("run", "sizes", "--scale", 0), "--scale 0.0 must be above 0"),
        *(
            (
                (command, "clustering", "--data", "cifar10", "--method", "agg", "--method", "hdbscan"),
                "there is no row of agg or hdbscan on cifar10 in the table clustering; there are cifar10: vae, "
                "laddervae, deepect, treevae",
            )
            for command in ("run", "show")
        ),
        (
            ("run", "clustering", "--data", "cifar100", "--data", "cifar10", "--method", "agg"),
            "there is no row of agg on cifar100 or cifar10 in the table clustering; there are cifar100: vae, "
            "laddervae, deepect, treevae; cifar10: vae, ",
        ),
    ],
)
def test_a_wrong_name_is_refused_in_one_line(arguments, why, tmp_path):
    (line,) = treevae("paper", *arguments, "--results", tmp_path, code=1).splitlines()
    assert line.startswith(f"Error: {why}")
