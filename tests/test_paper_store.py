"""Cells, the store of their records, and the jobs in which they are fitted."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from cells import cell_of, treevae

from treevae.experiments import store, tables
from treevae.experiments.cells import Job
from treevae.experiments.methods import METHODS, Method
from treevae.experiments.running import jobs_of, wanted
from treevae.experiments.store import DamagedRecordError, Store
from treevae.experiments.tables import TABLES
from treevae.recipes import RECIPES
from treevae.storage.writing import write_whole

# -- cells and the store --------------------------------------------------------------------------------------------


def test_a_name_can_be_read_and_differs_where_anything_does():
    assert cell_of(3).name.startswith("fashion-treevae-seed3-")
    assert cell_of(n_leaves=20, scale=0.1).name.startswith("fashion-treevae-n_leaves=20-x0.1-seed0-")
    assert "latent_dim=2.4.8.16.32.64" in cell_of(latent_dim=[2, 4, 8, 16, 32, 64]).name
    assert "tree=given" in cell_of(tree={"children": {"0": [1, 2]}, "n_created": 3}).name
    different = [cell_of(), cell_of(1), cell_of(scale=0.5), cell_of(n_leaves=20), cell_of(data="mnist"),
                 cell_of(method="agg"), cell_of(tree={"children": {}, "n_created": 1}),
                 cell_of(tree={"children": {"0": [1, 2]}, "n_created": 3})]  # fmt: skip
    assert len({cell.name for cell in different}) == len(different)
    assert cell_of().hash == cell_of(7).hash
    assert cell_of(n_leaves=10) == cell_of()  # a change that changes nothing
    one, other = cell_of(router_layers=3, n_init=2), cell_of(n_init=2, router_layers=3)
    assert one.name == other.name


def test_every_table_has_cells_with_names_of_their_own():
    every = {cell for table in TABLES.values() for cell in wanted(table, 2, 1.0)}
    assert len({cell.name for cell in every}) == len(every)
    assert max(len(cell.name) for cell in every) < 150


def test_the_scale_shortens_the_schedule():
    assert cell_of(scale=0.1).settings["epochs"] == 15
    assert cell_of(scale=1e-6).settings["epochs"] == 1
    assert "epochs" not in cell_of(method="agg").settings
    for scale in (0, -1, 101, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"scale=.* must be above 0 and at most 100; 1 is the paper's schedule"):
            cell_of(scale=scale)


def test_a_record_comes_back_with_its_identity(tmp_path):
    here = Store(tmp_path / "new")
    assert here.read(cell_of()) is None
    path = here.write(cell_of(), {"note": "x"}).path
    assert path == tmp_path / "new" / "records" / f"{cell_of().name}.json"
    assert here.read(cell_of()) == {"note": "x", "data": "fashion", "method": "treevae", "scale": 1.0, "seed": 0,
                                    "settings": RECIPES["fashion"]}  # fmt: skip
    here.write(cell_of(), {"note": "y"})
    assert here.read(cell_of())["note"] == "x"  # what is there stays
    assert [json.loads(path.read_text())["note"] for path in (tmp_path / "new" / "aside").iterdir()] == ["y"]
    here.write(cell_of(12), {"note": "z"})
    assert [(seed, record["note"]) for seed, record in here.seeds(cell_of(5)).items()] == [(0, "x"), (12, "z")]


def test_scales_never_share_a_cell(tmp_path):
    here = Store(tmp_path)
    here.write(cell_of(scale=0.1), {})
    assert here.read(cell_of()) is None
    assert here.seeds(cell_of()) == {}
    assert here.seeds(cell_of(scale=0.10001)) == {}
    assert list(here.seeds(cell_of(scale=0.1))) == [0]


@pytest.mark.parametrize("step", ["mkdir", "fsync", "link"])
def test_a_record_is_written_whole_or_not_at_all(tmp_path, monkeypatch, step):
    here = Store(tmp_path)

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(store.Path if step == "mkdir" else os, step, full)
        with pytest.raises(OSError, match=r"cannot write .*fashion-treevae-seed0.*: No space left"):
            here.write(cell_of(), {"much": list(range(1000))})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert here.write(cell_of(), {}).path.exists()


def test_a_record_that_is_replaced_is_kept_beside_earlier_ones(tmp_path):
    here = Store(tmp_path)
    here.write(cell_of(), {"note": "first"})
    for number, (before, after) in enumerate([("first", "second"), ("second", "third")], start=1):
        (replaces,) = here.replaceable([cell_of(), cell_of(1)]).values()
        _, aside, in_place = here.write(cell_of(), {"note": after}, replaces)
        assert in_place
        assert here.read(cell_of())["note"] == after
        assert aside == tmp_path / "aside" / f"{cell_of().name}-{number}.json"
        assert json.loads(aside.read_text())["note"] == before
        assert here.write(cell_of(), {"note": after}, replaces) == (here.path(cell_of()), None, True)  # once more
    assert len(list((tmp_path / "aside").iterdir())) == 2


@pytest.mark.parametrize("again", [False, True])
def test_of_two_fits_of_a_cell_the_first_stays_and_the_other_is_kept(tmp_path, again):
    here = Store(tmp_path)
    replaces = None
    if again:
        here.write(cell_of(), {"note": "old"})
        (replaces,) = here.replaceable([cell_of()]).values()
    here.write(cell_of(), {"note": "one"}, replaces)
    path, aside, in_place = here.write(cell_of(), {"note": "other"}, replaces)
    assert not in_place
    assert json.loads(path.read_text())["note"] == "one"
    assert json.loads(aside.read_text())["note"] == "other"


def test_what_a_kill_left_beside_a_record_does_not_spoil_it(tmp_path, monkeypatch):
    """Killed between two steps, a process leaves a second name of the record; another may have the same number."""
    here = Store(tmp_path)
    path = here.write(cell_of(), {"note": "whole"}).path
    os.link(path, path.with_name(f".{path.name}.{os.getpid()}.part"))
    content, (replaces,) = path.read_bytes(), here.replaceable([cell_of()]).values()

    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=f"{os.strerror(errno.ENOSPC)}; a file that was there is as it was"):
            here.write(cell_of(), {"note": "half"}, replaces)
        with pytest.raises(OSError, match=f"{os.strerror(errno.ENOSPC)}; a file that was there is as it was"):
            write_whole(path, "half")
    assert path.read_bytes() == content
    os.link(path, path.with_name(f".{path.name}.{os.getpid()}.part"))
    write_whole(path, "another")
    assert path.read_text() == "another"


@pytest.mark.parametrize("has_links", [True, False])
def test_of_two_processes_that_write_at_once_none_is_lost(tmp_path, monkeypatch, has_links):
    """The other one writes after this one has seen that there is no record, and sets one aside where this one would."""
    here, cells, link = Store(tmp_path), [cell_of(0), cell_of(1)], os.link

    def meanwhile(part, path):
        monkeypatch.setattr(os, "link", link if has_links else no_links)
        again = os.link
        if path.parent.name == "aside":
            path.write_text("the other's")
        else:
            with monkeypatch.context() as patch:
                patch.setattr(os, "getpid", lambda: 1)
                here.write(cells[0], {"note": "the other"})
            monkeypatch.setattr(os, "link", meanwhile)  # once more, when this one sets its record aside
        again(part, path)

    def no_links(part, path):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", meanwhile)
    path, aside, in_place = here.write(cells[0], {"note": "this one"})
    assert not in_place
    assert json.loads(path.read_text())["note"] == "the other"
    assert json.loads(aside.read_text())["note"] == "this one"
    assert (tmp_path / "aside" / f"{cells[0].name}-1.json").read_text() == "the other's"
    assert here.write(cells[1], {}).aside is None
    assert sorted(here.records.iterdir()) == sorted(map(here.path, cells))  # nothing half is left


def test_a_record_that_was_edited_while_its_successor_was_fitted_gives_way_to_it(tmp_path):
    here = Store(tmp_path)
    here.write(cell_of(), {"note": "old"})
    (job,) = jobs_of(here, [cell_of()], again=[cell_of()])
    (here.begin(job) / "state-a.safetensors").touch()
    path = here.path(cell_of())
    path.write_text(path.read_text().replace("old", "edited"))
    assert jobs_of(here, [cell_of()], again=[cell_of()]) == [job]  # and its state is there still
    _, aside, in_place = here.write(cell_of(), {"note": "new"}, job.replaces[cell_of().name])
    assert in_place
    assert here.read(cell_of())["note"] == "new"
    assert json.loads(aside.read_text())["note"] == "edited"
    assert here.has(job)


def test_the_record_that_gives_way_is_aside_before_its_successor_comes(tmp_path, monkeypatch):
    here = Store(tmp_path)
    here.write(cell_of(), {"note": "first"})
    (replaces,) = here.replaceable([cell_of()]).values()

    def killed_after(path, text):
        write_whole(path, text)
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "write_whole", killed_after)
    with pytest.raises(KeyboardInterrupt):
        here.write(cell_of(), {"note": "second"}, replaces)
    assert here.read(cell_of())["note"] == "second"
    assert json.loads((tmp_path / "aside" / f"{cell_of().name}-1.json").read_text())["note"] == "first"


def test_a_record_is_there_at_any_time_while_it_is_replaced(tmp_path, monkeypatch):
    here = Store(tmp_path)
    path = here.write(cell_of(), {"note": "first"}).path
    (replaces,) = here.replaceable([cell_of()]).values()
    content = path.read_bytes()

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for step in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, full)
            with pytest.raises(OSError, match="No space left"):
                here.write(cell_of(), {"note": "second"}, replaces)
        assert path.read_bytes() == content


@pytest.mark.parametrize("record", [{"elbo": {"ELBO": float("nan")}}, {"scores_percent": {"ACC": float("inf")}}])
def test_what_could_not_be_read_back_is_not_written(tmp_path, record):
    with pytest.raises(ValueError, match=r"fashion-treevae-seed0-.* is not written: its .* are not all numbers"):
        Store(tmp_path).write(cell_of(), record)
    assert list(tmp_path.iterdir()) == []


def test_a_record_of_another_cell_or_with_no_number_anywhere_is_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"is not written: its seed are not those of the cell"):
        Store(tmp_path).write(cell_of(1), {"seed": 7})
    with pytest.raises(ValueError, match=r"the record of fashion-.* is not written: .* not JSON compliant"):
        Store(tmp_path).write(cell_of(), {"nodes": [{"kl": float("nan")}]})
    assert list(tmp_path.iterdir()) == []


def test_a_record_whose_parameters_are_no_object_is_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"is not written: its parameters are no JSON object"):
        Store(tmp_path).write(cell_of(), {"parameters": [1e-3]})


@pytest.mark.parametrize("text", ["", '{"data": "fash', "[1, 2]", "{}", json.dumps({"data": "mnist"}), b"\xff\xfe"])
def test_a_damaged_record_is_refused_and_left_as_it_is(tmp_path, text):
    here, content = Store(tmp_path), text if isinstance(text, bytes) else text.encode()
    path = here.path(cell_of())
    path.parent.mkdir()
    path.write_bytes(content)
    for act in (here.read, here.seeds, lambda cell: here.write(cell, {}), lambda cell: jobs_of(here, [cell])):
        with pytest.raises(DamagedRecordError, match=r"is damaged: .*remove it to run the cell again"):
            act(cell_of())
    for command, code in (("run", 1), ("show", 0)):
        said = treevae("paper", command, "generative", "--results", tmp_path, code=code)
        assert f"{path.name} is damaged" in said
    (row,) = [line for line in said.splitlines() if line.startswith("Fashion") and " TreeVAE " in line]
    assert row.split().count("damaged") == 3
    assert said.count("not run") == 3 * (len(TABLES["generative"].rows) - 1)  # the others are shown
    said = treevae("paper", "list", "--results", tmp_path)
    assert f"{path.name} is damaged" in said
    (row,) = [line for line in said.splitlines() if line.startswith("generative")]
    assert row.endswith("; 1 damaged")
    assert path.read_bytes() == content


def test_the_records_in_the_repository_are_cells_of_the_tables():
    here = Store(Path(__file__).parents[1] / "results")
    files = {path.name for path in here.records.glob("*.json")}
    known = set()
    for table in TABLES.values():
        for cell in wanted(table, 1, 1.0):
            for seed, found in here.seeds(cell).items():
                assert {"command", "device", "versions"} <= set(found)
                known.add(here.path(replace(cell, seed=seed)).name)
    assert len(known) >= 10
    assert files == known


# -- jobs -----------------------------------------------------------------------------------------------------------


def test_seeds_of_one_fit_are_one_job_and_what_is_there_is_skipped(tmp_path):
    here = Store(tmp_path)
    wanted = [cell_of(seed, n_leaves=n) for n in (10, 20) for seed in range(4)]
    here.write(cell_of(1), {})
    assert [[(c.settings["n_leaves"], c.seed) for c in job.cells] for job in jobs_of(here, wanted)] == [
        [(10, 0), (10, 2), (10, 3)],
        [(20, 0), (20, 1), (20, 2), (20, 3)],
    ]
    assert [job.seeds for job in jobs_of(here, wanted, side_by_side=2)] == [(0, 2), (3,), (0, 1), (2, 3)]
    bisecting = [cell_of(seed, method="bisecting") for seed in range(3)]
    assert [job.seeds for job in jobs_of(here, bisecting)] == [(0,), (1,), (2,)]


def test_one_fit_may_serve_several_settings(tmp_path, monkeypatch):
    cuts = Method("cuts", METHODS["agg"].make, METHODS["agg"].fit, uses=("n_leaves", "latent_dim"),
                  together=("seed", "n_leaves"))  # fmt: skip
    monkeypatch.setitem(METHODS, "cuts", cuts)
    wanted = [cuts.cell("fashion", {"n_leaves": n, "latent_dim": z}, 1, s)
              for z in (4, 8) for n in (10, 20) for s in (0, 1)]  # fmt: skip
    assert [len(job.cells) for job in jobs_of(Store(tmp_path), wanted)] == [4, 4]


def test_a_job_that_was_begun_goes_on_as_it_was(tmp_path):
    here = Store(tmp_path)
    begun = Job(tuple(cell_of(seed) for seed in range(5)))
    folder = here.begin(begun)
    assert here.started() == []  # nothing to go on from yet
    (folder / "state-a.safetensors").touch()
    assert here.started() == [begun]
    here.write(cell_of(0), {})
    assert jobs_of(here, [cell_of(seed) for seed in range(7)]) == [begun, Job((cell_of(5), cell_of(6)))]
    assert jobs_of(here, [cell_of(0, n_leaves=3)]) == [Job((cell_of(0, n_leaves=3),))]
    for seed in range(5):
        here.write(cell_of(seed), {})
    assert jobs_of(here, [cell_of(0)]) == []
    assert not (tmp_path / "running").exists()


def test_a_job_that_replaces_records_goes_on_where_that_is_asked_for(tmp_path):
    here, cells = Store(tmp_path), [cell_of(0), cell_of(1)]
    here.write(cells[0], {"note": "old"})
    (job,) = jobs_of(here, cells, again=[cells[0]])
    assert job.seeds == (0, 1)
    assert list(job.replaces) == [cells[0].name]
    assert here.of_same_figures(job) == []  # the old one will not be averaged with the new ones
    (here.begin(job) / "state-a.safetensors").touch()
    here.write(cells[1], {})
    assert jobs_of(here, cells) == []  # nothing is missing
    assert here.started() == [job]  # but its state is kept
    assert jobs_of(here, cells, again=[cells[0]]) == [job]
    here.write(cells[0], {"note": "new"}, job.replaces[cells[0].name])
    assert jobs_of(here, cells) == []
    assert here.started() == []


def test_a_job_without_a_state_is_begun_anew(tmp_path):
    here = Store(tmp_path)
    here.begin(Job((cell_of(),)))  # killed before its first state
    here.write(cell_of(), {"note": "old"})
    (job,) = jobs_of(here, [cell_of()], again=[cell_of()])
    (here.begin(job) / "state-a.safetensors").touch()
    assert here.started() == [job]
    assert job.replaces


def test_a_damaged_job_is_refused(tmp_path):
    here = Store(tmp_path)
    folder = here.begin(Job((cell_of(),)))
    (folder / "state-a.safetensors").touch()
    (folder / "job.json").write_text('[{"data"')
    with pytest.raises(DamagedRecordError, match=r"job\.json cannot be read: .*its fit then starts anew"):
        jobs_of(here, [cell_of()])
    assert (folder / "state-a.safetensors").exists()


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"no table 'table1'; there are clustering, generative"):
        tables.table_of("table1")
    with pytest.raises(ValueError, match=r"no data set 'svhn' in the table clustering; there are mnist, fashion, "):
        wanted(TABLES["clustering"], 1, 1.0, ["mnist", "svhn"])
    with pytest.raises(ValueError, match=r"no method 'dbscan' in the table clustering; there are agg, vae, "):
        wanted(TABLES["clustering"], 1, 1.0, None, ["dbscan"])
    with pytest.raises(ValueError, match=r"seeds=0 must be at least 1"):
        wanted(TABLES["clustering"], 0, 1.0)


def test_scales_are_told_from_the_names_of_records(tmp_path):
    (tmp_path / "records").mkdir()
    for about in (
        "digits-agg",
        "digits-treevae-n_leaves=20-x0.1",
        "digits-vae-x1e-05",
        "mnist-agg-x0.5",
        "digits-agg-x..",
    ):
        (tmp_path / "records" / f"{about}-seed0-0123abcd.json").touch()
    (tmp_path / "records" / "digits-10-seed0.png").touch()
    assert Store(tmp_path).scales({"digits"}) == [1e-05, 0.1, 1.0]
    assert Store(tmp_path).scales({"mnist", "fashion"}) == [0.5]
    assert Store(tmp_path / "none").scales({"digits"}) == []
