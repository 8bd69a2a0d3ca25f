"""A report's page: what it shows, that it is whole, and that no text of a model is markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from boltgen.artifact.metadata import ChoiceInfo, Metadata, RestInfo
from boltgen.errors import UnknownArchError
from boltgen.report.compare import compared
from boltgen.report.facts import Facts, TimeKind, facts_of
from boltgen.report.figures import HEIGHT, WIDTH, partition, roofline
from boltgen.report.page import page
from boltgen.running.artifact import Artifact

_VOID = {"meta", "br", "rect", "line", "circle", "polyline"}


class Parsed(HTMLParser):
    """A page's elements, which are closed in order, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in _VOID:
            self._open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            elif name == "href":
                self.links.append(str(value))
            elif name == "src":
                self.sources.append(str(value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def metadata(artifact: Artifact) -> Metadata:
    return artifact.metadata


def facts(artifact: Artifact, metadata: Metadata) -> Facts:
    return facts_of(artifact.folder, metadata)


def test_all_of_a_model_is_on_the_page(artifact: Artifact, metadata: Metadata) -> None:
    parsed = Parsed(page(facts(artifact, metadata)))
    for region in metadata.regions:
        assert region.label in parsed.text
        assert f"{region.time_us:.1f}" in parsed.text
        assert region.symbol in parsed.ids
    for kernel in metadata.kernels:
        source = (artifact.folder / kernel.source).read_text()
        assert source.splitlines()[5] in parsed.text
    for name, version in metadata.versions.items():
        assert name in parsed.text
        assert version in parsed.text
    assert metadata.check is not None
    assert str(metadata.check) in parsed.text
    assert all(note in parsed.text for note in (*metadata.padding, *metadata.notes))
    assert metadata.library_sha256 in parsed.text


def test_it_needs_no_other_file(artifact: Artifact, metadata: Metadata) -> None:
    text = page(facts(artifact, metadata))
    parsed = Parsed(text)
    assert parsed.sources == []
    assert not {"link", "img", "iframe"}.intersection(parsed.tags)
    assert not re.search(r"@import|url\(", text)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {link.removeprefix("#") for link in parsed.links} <= set(parsed.ids)
    assert len(parsed.links) > len(metadata.regions)


def test_no_text_of_a_model_is_markup(artifact: Artifact, metadata: Metadata) -> None:
    evil = "<script>alert('x')</script>"
    first, *rest = metadata.regions
    changed = replace(
        metadata,
        model=evil,
        notes=(evil,),
        regions=(replace(first, label=evil, why=evil, origin=evil), *rest),
        placements=tuple(replace(each, operator=evil, reason=evil) for each in metadata.placements),
        versions={evil: evil},
    )
    parsed = Parsed(page(facts(artifact, changed)))
    assert parsed.tags.count("script") == 1
    assert parsed.text.count(evil) > 5


def test_times_say_where_they_are_from(artifact: Artifact, metadata: Metadata) -> None:
    origins = {
        "measured on NVIDIA A100": TimeKind.MEASURED,
        "modelled by the virtual GPU as A100": TimeKind.MODELLED,
        "predicted by the analytical model": TimeKind.PREDICTED,
        "somebody said so": TimeKind.UNKNOWN,
    }
    regions = tuple(
        replace(region, origin=origin)
        for region, origin in zip(metadata.regions, origins, strict=False)
    )
    found = facts(artifact, replace(metadata, regions=regions))
    assert [region.kind for region in found.regions] == list(origins.values())
    assert sum(region.share for region in found.regions) == pytest.approx(1.0)


def test_work_and_bytes_are_those_of_the_kernels_operands(
    artifact: Artifact, metadata: Metadata
) -> None:
    regions = facts(artifact, metadata).regions
    for region in regions:
        products = (2 * e.batch * e.m * e.n * e.k for e in region.info.gemms)
        assert region.flops == sum(products)
    (conv,) = (
        r for r in regions if "c=32, k=32, r=3" in r.info.problem and ";" not in r.info.problem
    )
    image, filters, biases = 40 * 16 * 16 * 32, 32 * 3 * 3 * 32, 32
    assert conv.moved_bytes == 2 * (3 * image + filters + biases), "A, a residual, and D"


def test_marks_are_inside_their_figures(artifact: Artifact, metadata: Metadata) -> None:
    found = facts(artifact, metadata)
    drawn = partition(found)
    regions = [box.step.region for box in drawn.boxes if box.step.region]
    assert regions == list(found.regions)
    assert sum(box.step.region is None for box in drawn.boxes) == sum(
        placement.region is None for placement in metadata.placements
    )
    assert max(box.filled / box.width for box in drawn.boxes) == 1.0
    roof = roofline(found)
    assert roof is not None
    assert len(roof.points) == len(found.regions)
    for x, y in (*roof.roof, *((point.x, point.y) for point in roof.points)):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    assert all(point.y > min(y for _, y in roof.roof) for point in roof.points), "below the peak"


def test_open_sizes_have_a_table_and_no_roofline(artifact: Artifact, metadata: Metadata) -> None:
    choice = ChoiceInfo(
        sizes="batch from 1 to 8", kernel="k", config="64x64x32", time_us=7.5, origin="predicted"
    )
    regions = tuple(
        replace(region, problem="Gemm(m=batch)", choices=(choice,), regret=1.25)
        for region in metadata.regions
    )
    changed = replace(metadata, regions=regions, rest=None, check=None)
    text = Parsed(page(facts(artifact, changed))).text
    assert "batch from 1 to 8" in text
    assert "1.250 of each size's best" in text
    assert "Roofline" not in text
    assert "No kernel was executed" in text


def test_the_regions_share_of_all_bytes(artifact: Artifact, metadata: Metadata) -> None:
    ours = sum(region.moved_bytes or 0 for region in facts(artifact, metadata).regions)
    rest = RestInfo(name="copy", count=2, time_us=4.0, moved_bytes=ours)
    found = facts(artifact, replace(metadata, rest=(rest,)))
    assert found.moved_share == 0.5
    assert "boltgen's move 50.0 %" in Parsed(page(found)).text
    unknown = facts(artifact, replace(metadata, rest=(rest, replace(rest, moved_bytes=None))))
    assert unknown.moved_share is None
    assert "boltgen's move" not in Parsed(page(unknown)).text


def test_sources_may_be_missing(metadata: Metadata, tmp_path: Path) -> None:
    text = Parsed(page(facts_of(tmp_path, metadata))).text
    assert text.count("The folder has no source of it") == len(metadata.kernels)


def test_an_arch_that_is_not_known_is_refused(artifact: Artifact, metadata: Metadata) -> None:
    with pytest.raises(UnknownArchError, match="sm_999"):
        facts(artifact, replace(metadata, arch="sm_999"))


def test_two_models_are_compared_by_what_their_regions_compute(
    artifact: Artifact, metadata: Metadata
) -> None:
    first, second, third, *rest = metadata.regions
    assert first.time_us is not None
    other = replace(
        metadata,
        regions=(
            replace(first, time_us=2 * first.time_us),
            replace(second, origin="measured on NVIDIA A100"),
            replace(third, label="another"),
            *rest,
        ),
        versions={**metadata.versions, "nvcc": "0.1"},
    )
    ours, theirs = facts(artifact, metadata), facts(artifact, other)
    found = compared(ours, theirs)
    by_label = [(row.ours is not None, row.theirs is not None, row.ratio) for row in found.rows]
    assert by_label[0] == (True, True, 0.5)
    assert by_label[1] == (True, True, None), "a prediction is no measurement"
    assert by_label[2] == (True, False, None)
    assert by_label[-1] == (False, True, None)
    assert found.versions == {"nvcc": (metadata.versions["nvcc"], "0.1")}
    text = Parsed(page(ours, found)).text
    assert "0.50" in text
    assert "0.1" in text
