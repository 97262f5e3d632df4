from __future__ import annotations

from pathlib import Path

import pytest

from day0.errors import InputError
from day0.plan.cluster import cluster_from, describe, known_gpus, parse_cluster
from day0.source.data_files import data_path, load_yaml


def test_a_spec_names_gpus_and_nodes() -> None:
    cluster = parse_cluster("h200:8x2")
    assert (cluster.gpu.name, cluster.gpus_per_node, cluster.nodes, cluster.gpus) == ("h200", 8, 2, 16)
    assert parse_cluster("H100:4").gpus == 4


@pytest.mark.parametrize("name", known_gpus())
def test_every_packaged_gpu_is_complete_and_says_where_each_figure_is_from(name: str) -> None:
    values = load_yaml(data_path("recipes", "clusters", f"{name}.yaml"))
    cluster = parse_cluster(f"{name}:8")
    assert cluster.gpu.name == name
    assert values["sources"].keys() == set(values) - {"name", "title", "vendor", "generation", "sources"}
    assert all(len(source) > 15 for source in values["sources"].values())
    assert 20 * 2**30 < cluster.gpu.memory_bytes < 300 * 2**30
    assert cluster.gpu.flops["bf16"] > 5e13 and cluster.gpu.bandwidth > cluster.gpu.link_bandwidth


def test_faster_formats_are_faster() -> None:
    for name in known_gpus():
        rates = parse_cluster(f"{name}:1").gpu.flops
        assert rates["bf16"] <= rates.get("fp8", rates["bf16"]) <= rates.get("fp4", float("inf"))


def test_an_unknown_gpu_lists_the_known() -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster("h900:8")
    assert "h900" in str(caught.value) and "h200" in caught.value.hint


@pytest.mark.parametrize("spec", ["h200", "h200:", "h200:8x", "h200:eight", "8", "h200:8x2x2", ""])
def test_a_broken_spec_says_what_is_meant(spec: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster(spec)
    assert "h200:8x2" in caught.value.hint


@pytest.mark.parametrize("spec", ["h200:0", "h200:8x0"])
def test_no_gpu_is_no_cluster(spec: str) -> None:
    with pytest.raises(InputError):
        parse_cluster(spec)


@pytest.mark.parametrize("spec", ["h200:99999999999999999999", "h200:8x99999999", "h200:1" + 400 * "0"])
def test_more_gpus_than_there_are_is_refused_before_the_search(spec: str) -> None:
    with pytest.raises(InputError):
        parse_cluster(spec)


def test_more_gpus_on_a_node_than_usual_is_remarked_on() -> None:
    assert not parse_cluster("h200:8").notes
    assert "h200:8x2" in parse_cluster("h200:16").notes[0]


def test_a_cluster_file_takes_a_known_gpu_and_changes_it(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text("gpu: h200\nnodes: 3\ngpus_per_node: 4\nnetwork_gb_s: 12.5\n")
    cluster = parse_cluster(str(path))
    assert (cluster.gpus, cluster.network_bandwidth) == (12, 12.5e9)
    assert cluster.gpu.memory_bytes == parse_cluster("h200:1").gpu.memory_bytes


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("gpu: h200\nnodez: 3\n", "nodez"),
        ("gpu: h900\n", "h900"),
        ("name: ours\n", "memory_bytes"),
        ("gpu: h200\nnodes: 1.5\n", "nodes"),
        ("gpu: h200\nsources: 5\n", "sources"),
        ("gpu: h200\nname: [a]\n", "name"),
        ("gpu: h200\nvendor: 3\n", "vendor"),
        ("gpu: h200\nbandwidth_gb_s: -1\n", "bandwidth_gb_s"),
        ("gpu: h200\nbandwidth_gb_s: fast\n", "bandwidth_gb_s"),
        ("gpu: h200\ntflops: {fp8: 2}\n", "bf16"),
        ("gpu: h200\ntflops: {bf16: 1, int8: 2}\n", "int8"),
        ("- h200\n", "mapping"),
    ],
)
def test_a_broken_cluster_file_names_the_file_and_the_key(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        parse_cluster(str(path))
    assert "ours.yaml" in str(caught.value) and word in str(caught.value)


def test_a_missing_cluster_file_is_named() -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        parse_cluster("nowhere.yaml")


def test_a_description_reads_back_as_the_same_cluster() -> None:
    cluster = parse_cluster("b200:8x2")
    again = cluster_from(describe(cluster), "plan.yaml")
    assert describe(again) == describe(cluster) and again.gpus == 16
