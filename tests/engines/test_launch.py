from __future__ import annotations

from day0.engines.launch import Node


def test_a_node_without_a_number_leaves_it_to_the_shell() -> None:
    assert Node(2).times(4) == "8" and not Node(2).is_head and Node(0).is_head
    assert Node(None).times(4) == "$((NODE_RANK * 4))" and not Node(None).is_head
