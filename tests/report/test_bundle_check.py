"""A bundle judged again: it holds as written, and whatever is altered in it is found and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from day0.cli.main import main
from day0.errors import InputError
from day0.report.bundle import ALWAYS, BASELINE, MANIFEST, PAGE, hash_of
from day0.report.bundle_check import check_bundle
from day0.report.schemas import schema_files
from tests.report.bundles import write_bundle, write_manifest

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def bundle(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "bundle"))


def test_it_holds_as_written(bundle: Path) -> None:
    found = check_bundle(bundle)
    assert (found.verdict, found.altered, found.missing, found.checks) == ("holds", (), (), 6)
    statuses = [
        check["status"]
        for phase in json.loads((bundle / "checklist.json").read_text())["phases"]
        for check in phase["checks"]
    ]
    assert statuses == ["pass", "na", "pass", "fail", "error", "warn"]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, dict | list) and value:
        for key, entry in entries:
            yield from leaves(entry, (*path, key))
    else:
        yield path


def other(value: Any) -> Any:
    """Another value of the same kind, a small change of it where there is one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if isinstance(value, int) else value * 1.01 or 0.5
    swapped = {"pass": "fail", "fail": "pass", "warn": "pass", "ready": "not-ready", "Infinity": 1.0}
    return swapped.get(value, f"{value}x") if isinstance(value, str) else "something"


def changed(document: Any, path: tuple[Any, ...]) -> Any:
    copy = json.loads(json.dumps(document))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = other(place[path[-1]])
    return copy


def unread(path: tuple[Any, ...]) -> bool:
    """A hint of a check that passed is shown nowhere."""
    return path[-1] == "hint" and path[:2] in (("records", 0), ("records", 2))


def whose(document: Any, path: tuple[Any, ...]) -> str:
    """What a finding must name: the check that the leaf belongs to, else its key."""
    if path[0] == "records":
        return str(document["records"][path[1]]["spec"]["id"])
    if path[:1] == ("phases",) and path[2] == "checks":
        return str(document["phases"][path[1]]["checks"][path[3]]["id"])
    if path[0] == "measured":
        return str(path[1])
    return next(key for key in reversed(path) if isinstance(key, str))


@pytest.mark.parametrize("name", ["checklist.json", "evidence.json", "baseline.json"])
def test_every_leaf_that_is_altered_is_found_by_its_place(name: str, bundle: Path) -> None:
    """Also where the one who altered it wrote the manifest anew, so that the hashes say nothing."""
    document = json.loads((bundle / name).read_text())
    paths = [path for path in leaves(document) if not unread(path)]
    if name == BASELINE:
        paths = [path for path in paths if path[0] == "measured"]
    assert len(paths) > {"checklist.json": 120, "evidence.json": 140, "baseline.json": 1}[name]
    (bundle / PAGE).unlink()  # drawing it a few hundred times would take a minute, and name nothing
    for path in paths:
        (bundle / name).write_text(json.dumps(changed(document, path)))
        write_manifest(bundle)
        found = check_bundle(bundle)
        assert found.verdict == "altered", f"{path} was altered and nobody saw"
        named = [entry.place for entry in found.altered]
        wanted = whose(document, path)
        assert any(wanted in place for place in named), f"{path}: {named}"


@pytest.mark.parametrize("name", [*ALWAYS, BASELINE])
def test_one_byte_more_in_any_file_is_found(name: str, bundle: Path) -> None:
    with (bundle / name).open("ab") as file:
        file.write(b" ")
    found = check_bundle(bundle)
    assert found.verdict == "altered" and name in {entry.file for entry in found.altered}


@pytest.mark.parametrize(
    ("name", "before", "after", "place"),
    [
        ("checklist.yaml", "wrong: {max: 0}", "wrong: {max: 9}", "loading.fine.limits.wrong.max"),
        ("checklist.yaml", "probe: absent", "probe: fine", "loading.absent.probe"),
        ("checklist.yaml", "tensors: 3", "tensors: 4", "loading.fine.parameters.tensors"),
        ("checklist.yaml", "id: stability.boom", "id: stability.other", "stability.other"),
        ("junit.xml", 'failures="0"', 'failures="7"', ""),
        ("report.html", "boom", "fine", ""),
        ("report.html", 'class="verdict">ready', 'class="verdict">not ready', ""),
    ],
)
def test_what_the_others_say_must_follow_too(name: str, before: str, after: str, place: str, bundle: Path) -> None:
    text = (bundle / name).read_text()
    assert before in text
    (bundle / name).write_text(text.replace(before, after))
    write_manifest(bundle)
    found = check_bundle(bundle)
    assert found.verdict == "altered" and any(place in entry.place for entry in found.altered)


def test_a_figure_altered_everywhere_still_parts_from_its_samples(bundle: Path) -> None:
    for name in ("checklist.json", "evidence.json"):
        text = (bundle / name).read_text()
        assert text.count('"ttft_ms": 4.0') >= 1
        (bundle / name).write_text(text.replace('"ttft_ms": 4.0', '"ttft_ms": 2.0'))
    text = (bundle / BASELINE).read_text().replace('"ttft_ms":4.0', '"ttft_ms":2.0')
    (bundle / BASELINE).write_text(text)
    write_manifest(bundle)
    named = [entry.message for entry in check_bundle(bundle).altered]
    assert "ttft_ms is 2.0, but ttft_samples_ms give 4.0" in named


def test_the_digest_shows_a_bundle_made_anew(bundle: Path) -> None:
    digest = hash_of((bundle / MANIFEST).read_bytes())
    assert check_bundle(bundle, f"sha256:{digest}").verdict == "holds"
    text = (bundle / MANIFEST).read_text()
    (bundle / MANIFEST).write_text(f"{text}\n")
    assert check_bundle(bundle).verdict == "holds"
    assert check_bundle(bundle, digest).altered[0].file == MANIFEST


@pytest.mark.parametrize("name", [*ALWAYS, BASELINE, MANIFEST])
def test_a_missing_file_cannot_be_judged(name: str, bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bundle / name).unlink()
    found = check_bundle(bundle)
    assert (found.verdict, found.missing) == ("incomplete", (name,))
    assert main(["report", "verify", str(bundle)]) == 4
    assert f"missing: {name}" in capsys.readouterr().out


def test_statuses_of_the_command(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "verify", str(bundle), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, json.loads((SCHEMAS / "day0.bundle-check-1.json").read_text()))
    assert main(["report", "verify", str(bundle), "--digest", "0" * 64]) == 1
    assert "ALTERED" in capsys.readouterr().out
    (bundle / "evidence.json").write_text("{")
    assert main(["report", "verify", str(bundle)]) == 2
    assert "evidence.json: is no JSON" in capsys.readouterr().err
    assert main(["report", "verify", str(tmp_path / "nowhere")]) == 2
    assert main(["report", "delete", str(bundle)]) == 2


def test_a_folder_of_something_else_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no evidence"):
        check_bundle(tmp_path)


def test_published_schemas_are_those_of_the_records() -> None:
    assert {path.name: path.read_bytes() for path in SCHEMAS.iterdir()} == schema_files(), "scripts/make_schemas.py"


@pytest.mark.parametrize("name", ["checklist", "evidence"])
def test_documents_keep_their_schema_and_broken_ones_do_not(name: str, bundle: Path) -> None:
    schema = json.loads((SCHEMAS / f"day0.{name}-1.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads((bundle / f"{name}.json").read_text())
    jsonschema.validate(document, schema)
    for wrong in ({**document, "schema": "day0.other/1"}, {key: document[key] for key in list(document)[1:]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_a_status_nobody_knows_breaks_the_schema(bundle: Path) -> None:
    schema = json.loads((SCHEMAS / "day0.checklist-1.json").read_text())
    document = json.loads((bundle / "checklist.json").read_text())
    document["phases"][0]["checks"][0]["status"] = "fine"
    with pytest.raises(jsonschema.ValidationError, match="fine"):
        jsonschema.validate(document, schema)


def test_the_manifest_keeps_its_schema(bundle: Path) -> None:
    schema = json.loads((SCHEMAS / "day0.bundle-1.json").read_text())
    jsonschema.validate(json.loads((bundle / MANIFEST).read_text()), schema)
