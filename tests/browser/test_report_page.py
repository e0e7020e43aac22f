"""The report in a browser: fold, zoom, click, cut, hover, keys, light and dark, small and large, paper."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

ROOT, INNER, ONE_CHILD = 0, 1, 2


def node(page: Any, number: int) -> Any:
    return page.locator(f'.node[data-node="{number}"]')


def shown(page: Any) -> list[int]:
    """The nodes on the page."""
    return sorted(int(one.get_attribute("data-node")) for one in page.locator(".node").all())


def scale(page: Any) -> float:
    return page.evaluate("new DOMMatrix(getComputedStyle(document.querySelector('.world')).transform).a")


def test_the_whole_tree_is_in_sight(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"])
    assert page.locator("h1").inner_text() == "images & <b>more</b>"
    assert shown(page) == [0, 1, 3, 4, 5, 6, 7]  # node 2 has one child, 7, which stands for it
    view = page.locator("#viewport").bounding_box()
    for card in page.locator(".leafcard").all():
        box = card.bounding_box()
        assert box["x"] >= view["x"]
        assert box["x"] + box["width"] <= view["x"] + view["width"] + 1
        assert box["y"] + box["height"] <= view["y"] + view["height"] + 1
    assert page.locator(".branches path").count() == 6
    assert page.locator(".leafcard .tile").count() >= 8


def test_a_node_folds_and_unfolds(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"])
    node(page, 3).click()
    assert shown(page) == [0, 1, 3, 4, 5, 6, 7]  # the first click only opens its panel
    node(page, 3).click()
    assert shown(page) == [0, 1, 3, 4, 7]
    assert page.locator("output").inner_text() == "3 groups"
    assert node(page, 3).get_attribute("aria-expanded") == "false"
    node(page, 3).locator(".knob").click()
    assert shown(page) == [0, 1, 3, 4, 5, 6, 7]
    node(page, 5).dblclick()  # a leaf has nothing to fold
    assert shown(page) == [0, 1, 3, 4, 5, 6, 7]
    for _ in range(2):
        node(page, 1).click()
    assert shown(page) == [0, 1, 7]
    node(page, 1).locator(".knob").click()
    assert shown(page) == [0, 1, 3, 4, 5, 6, 7]  # what was open below is open again


def test_a_click_draws_the_panel_once(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"])
    page.evaluate("""() => {
        window.drawn = 0;
        new MutationObserver((all) => { window.drawn += all.length; }).observe(panel, { childList: true });
    }""")
    node(page, 4).click()
    assert page.evaluate("window.drawn") == 1


def test_the_slider_cuts_the_tree_into_groups(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"])
    for k, nodes in ((1, [0]), (2, [0, 1, 7]), (3, [0, 1, 3, 4, 7]), (4, [0, 1, 3, 4, 5, 6, 7])):
        page.locator("#cut").fill(str(k))
        assert shown(page) == nodes
        assert page.locator(".leafcard").count() == k


def test_many_leaves_are_folded_at_first(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["many"])
    assert page.locator(".leafcard").count() == 24
    assert page.locator("output").inner_text() == "24 groups"
    page.locator("#cut").fill("30")
    assert page.locator(".leafcard").count() == 30


def test_zoom_pan_and_back(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"])
    before = scale(page)
    page.mouse.move(300, 500)
    page.mouse.wheel(0, -400)
    page.wait_for_timeout(200)
    assert scale(page) > 1.2 * before
    box = node(page, 1).locator(".knob").bounding_box()
    page.mouse.move(40, 700)
    page.mouse.down()
    page.mouse.move(140, 650, steps=4)
    page.mouse.up()
    moved = node(page, 1).locator(".knob").bounding_box()
    assert (moved["x"] - box["x"], moved["y"] - box["y"]) == pytest.approx((100, -50), abs=2)
    for name, wanted in (("Show the whole tree", before), ("Zoom in", 1.5 * before), ("Zoom out", before)):
        page.get_by_role("button", name=name).click()
        page.wait_for_timeout(100)
        assert scale(page) == pytest.approx(wanted)


def test_a_click_on_a_leaf_opens_its_panel(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"])
    node(page, 4).click()
    panel = page.locator("#tabpanel")
    assert panel.get_attribute("data-node") == "4"
    parts = panel.locator("h3").evaluate_all("all => all.map(one => one.firstChild.textContent)")
    assert parts == ["Classes", "Typical", "In doubt", "Generated", "ELBO"]
    assert panel.locator(".gallery").first.locator(".tile").count() > 3
    assert node(page, 4).get_attribute("aria-selected") == "true"
    panel.locator(".crumbs button").first.click()
    assert panel.get_attribute("data-node") == str(ROOT)
    assert "What split it" in panel.inner_text()
    assert panel.locator(".means .tile").count() == 3


def a_point(page: Any) -> dict[str, Any]:
    """The rightmost point of the map: its leaf, and where it is on the page."""
    return page.evaluate("""() => {
        const { samples } = JSON.parse(document.getElementById("bundle").textContent);
        const [x, y] = [samples.x, samples.y].map((all) => [Math.min(...all), Math.max(...all)]);
        const canvas = document.querySelector("#map canvas");
        const box = canvas.getBoundingClientRect();
        const side = Math.min((canvas.clientWidth - 20) / (x[1] - x[0]), (canvas.clientHeight - 20) / (y[1] - y[0]));
        const i = samples.x.indexOf(x[1]);
        return { leaf: samples.leaf[i], x: box.x + box.width / 2 + (x[1] - x[0]) / 2 * side,
                 y: box.y + box.height / 2 - (samples.y[i] - (y[0] + y[1]) / 2) * side };
    }""")


def test_hovering_links_tree_and_map(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"])
    canvas = page.locator("#map canvas")
    still = canvas.evaluate("it => it.toDataURL()")
    node(page, 7).locator(".badge").hover()
    page.wait_for_timeout(100)
    assert canvas.evaluate("it => it.toDataURL()") != still
    assert node(page, 5).evaluate("it => it.classList.contains('dim')")
    assert not node(page, 7).evaluate("it => it.classList.contains('dim')")
    where = a_point(page)
    page.mouse.move(where["x"], where["y"])
    assert page.locator("#tip").is_visible()
    lit = page.locator(".node.group:not(.dim)").all()
    assert [int(one.get_attribute("data-node")) for one in lit] == [where["leaf"]]
    page.mouse.click(where["x"], where["y"])
    assert page.locator("#tabpanel").get_attribute("data-node") == str(where["leaf"])


def test_a_finger_finds_a_sample_on_the_map(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"], 360, 740, touch=True)
    page.locator("#map canvas").scroll_into_view_if_needed()
    where = a_point(page)
    page.touchscreen.tap(where["x"], where["y"])
    assert page.locator("#tabpanel").is_visible()
    assert page.locator("#tabpanel").get_attribute("data-node") == str(where["leaf"])


def test_the_map_is_coloured_by_leaf_level_or_class(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"])
    choices = page.locator("#colour option").evaluate_all("all => all.map(one => one.value)")
    assert choices == ["groups", "leaves", "level 1", "level 2", "class"]
    pictures, explained = set(), []
    for choice in choices[1:]:
        page.locator("#colour").select_option(choice)
        page.wait_for_timeout(60)
        pictures.add(page.locator("#map canvas").evaluate("it => it.toDataURL()"))
        explained.append(page.locator("#map .legend li").count())
    assert len(pictures) == 4
    assert explained == [4, 2, 3, 10]  # a colour for every cluster, group of the level, or class
    assert page.locator("#map .legend li").last.inner_text() == "<img src=x onerror=alert(1)>"
    assert page.locator("#tabpanel .legend li").count() == 10  # the root lists all classes


def test_keys(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"])
    node(page, ROOT).focus()
    at = page.locator("#tabpanel")
    for key, wanted in (("ArrowDown", 1), ("ArrowDown", 3), ("ArrowRight", 4), ("ArrowUp", 1), ("ArrowRight", 7)):
        page.keyboard.press(key)
        assert at.get_attribute("data-node") == str(wanted), key
        assert page.evaluate("document.activeElement.dataset.node") == str(wanted)
    for _ in range(2):
        page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert shown(page) == [0]
    page.keyboard.press("Enter")
    assert shown(page) == [0, 1, 3, 4, 5, 6, 7]
    page.keyboard.press("[")
    assert page.locator("output").inner_text() == "3 groups"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    assert at.get_attribute("data-node") == str(ROOT)
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()


def test_everything_can_be_reached_by_tab_and_has_a_name(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"])
    unnamed = page.evaluate("""() => [...document.querySelectorAll("button, input, select, [role=treeitem], canvas")]
        .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.closest("label")))
        .map((one) => one.outerHTML)""")
    assert unnamed == []
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.dataset.node || ''"))
    assert {"cut", "theme", "ask", "0", "fit", "colour", "tab-node", "tabpanel"} <= reached


def test_all_leaves_and_training(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"])
    page.locator("#tab-leaves").click()
    assert page.locator(".every-leaf tbody tr").count() == 4
    assert page.locator(".every-leaf td.best").count() == page.locator(".every-leaf thead th").count()
    page.locator("#tab-leaves").press("ArrowRight")
    assert page.locator("#tab-training").get_attribute("aria-selected") == "true"
    assert page.locator(".chart path.loss").get_attribute("d").count("L") > 3


@pytest.mark.parametrize("kind", ["texts", "table"])
def test_texts_and_tables_have_cards(kind: str, reports: dict[str, str], opened: Any) -> None:
    page = opened(reports[kind])
    assert page.locator(".tile").count() == 0
    assert page.locator(".leafcard .card").count() == page.locator(".leafcard").count() > 1
    page.locator(f'.node[data-node="{ROOT}"]').click()
    assert page.locator("#tabpanel .contrast tr").count() >= 5
    assert page.locator("#tabpanel .gallery .card").count() > 5
    assert "<img src=x onerror=alert(1)>" in page.locator("#tabpanel").inner_text()  # a name, not an element
    assert page.locator("img").count() == 0


def test_names_stay_text(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"])
    page.locator("#tabpanel .legend").wait_for()
    assert page.locator("h1 b, img").count() == 0


def test_light_and_dark(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"])
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.locator("#theme").click()
    dark = page.evaluate(ground)
    assert sum(map(int, re.findall(r"\d+", dark)[:3])) < 150 < sum(map(int, re.findall(r"\d+", light)[:3]))
    assert opened(reports["images"], theme="dark").evaluate(ground) == dark


@pytest.mark.parametrize(("width", "height"), [(360, 740), (1280, 800), (3840, 2160)])
@pytest.mark.parametrize("kind", ["images", "table"])
def test_nothing_sticks_out(
    kind: str, width: int, height: int, reports: dict[str, str], opened: Any, tmp_path: Path
) -> None:
    page = opened(reports[kind], width, height)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    smallest = page.evaluate("""() => Math.min(...[...document.querySelectorAll(".leafcard .name, .share, .numbers dt")]
        .filter((one) => one.checkVisibility()).map((one) => {
            const { a } = new DOMMatrix(getComputedStyle(document.querySelector(".world")).transform);
            return parseFloat(getComputedStyle(one).fontSize) * (one.closest(".world") ? a : 1);
        }))""")
    assert smallest >= (9 if width < 3000 else 16)
    page.screenshot(path=tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000


@pytest.mark.parametrize("kind", ["table", "units"])
@pytest.mark.parametrize("width", [360, 1280])
def test_features_have_names_and_whole_numbers(width: int, kind: str, reports: dict[str, str], opened: Any) -> None:
    page = opened(reports[kind], width)
    for tab, part in (("node", ".leafcard"), ("node", ".gallery"), ("leaves", ".every-leaf")):
        page.locator(f"#tab-{tab}").click()
        boxes = page.locator(f"{part} .feature").evaluate_all("""all => all.map(one => {
            const [label, value] = [".label", ".value"].map((name) => one.querySelector(name));
            const [inside, around] = [value, value.closest(".marks, .card")].map((it) => it.getBoundingClientRect());
            const cut = Math.max(inside.right - around.right, inside.bottom - around.bottom);
            return { label: label.clientWidth, cut, own: value.scrollWidth - value.clientWidth };
        })""")
        assert min(one["label"] for one in boxes) > 30
        assert max(max(one["cut"], one["own"]) for one in boxes) < 1


def test_numbers_of_any_unit_keep_their_digits(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["units"])
    rows = page.locator("#tabpanel .contrast tr")
    shown = {row.locator("th").get_attribute("title"): row.locator("td").first.inner_text() for row in rows.all()}
    assert re.fullmatch(r"−?\d(\.\d\d?)?e−\d", shown["a"])
    assert re.fullmatch(r"−?\d(\.\d\d?)?e[89]", shown["c"])
    assert re.fullmatch(r"−?\d\.\d\d?\d?", shown["b"])


def test_one_leaf(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["single"])
    assert page.locator("#about").inner_text() == "200 samples in 1 cluster"
    assert "nothing stands out" in page.locator(".leafcard").inner_text()


def test_on_a_small_screen_the_panel_is_a_sheet(reports: dict[str, str], opened: Any) -> None:
    page = opened(reports["images"], 360, 740)
    content, close = page.locator("#tabpanel"), page.locator("#panel .close")
    assert not content.is_visible()
    node(page, 4).locator(".badge").click()
    assert content.is_visible()
    assert content.get_attribute("data-node") == "4"
    close.click()
    assert not content.is_visible()
    for name, found in (("training", ".chart"), ("leaves", ".every-leaf"), ("node", ".numbers")):
        page.locator(f"#tab-{name}").click()  # its tabs are always in sight
        assert content.locator(found).first.is_visible()
        close.click()
        assert not content.is_visible()


def test_lines_of_the_page_are_short() -> None:
    sources = {
        one.name: one.read_text() for one in (files("treevae.page") / "assets").iterdir() if one.name.endswith(".js")
    }
    long = [f"{name}: {line}" for name, text in sources.items() for line in text.split("\n") if len(line) > 120]
    assert sources
    assert long == []


def test_prints_on_few_pages(reports: dict[str, str], opened: Any) -> None:
    pdf = opened(reports["images"]).pdf(prefer_css_page_size=True)
    assert 1 < len(re.findall(rb"/Type\s*/Page\b", pdf)) < 8


# How eyes that lack one kind of cones see linear red, green and blue (Machado, Oliveira and Fernandes 2009).
LACKING = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("eyes", LACKING)
def test_neighbours_have_colours_that_all_eyes_tell_apart(
    eyes: str, theme: str, reports: dict[str, str], opened: Any
) -> None:
    page = opened(reports["many"], theme=theme)
    page.locator("#cut").fill("10")
    gaps = page.evaluate(
        """(lacking) => {
            const linear = (v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
            const back = (v) => 255 * (v <= .0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - .055);
            const seen = (colour) => {
                const { r, g, b } = d3.rgb(colour);
                const light = [r, g, b].map(linear);
                return d3.lab(d3.rgb(...lacking.map((row) => back(row.reduce((sum, w, i) => sum + w * light[i], 0)))));
            };
            const groups = [...document.querySelectorAll(".node.group")];
            const colours = groups.map((one) => seen(one.style.getPropertyValue("--colour")));
            return d3.pairs(colours, (p, q) => Math.hypot(p.l - q.l, p.a - q.a, p.b - q.b));
        }""",
        LACKING[eyes],
    )
    assert len(gaps) == 9
    assert min(gaps) > 7  # a difference of 2.3 is just noticeable
