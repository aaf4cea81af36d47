"""No module imports itself by way of others, not even for type checkers only, or within a function.

Who reads one module of a cycle has to read all of them.
"""

from __future__ import annotations

import graphlib

import grimp


def test_no_modules_import_each_other() -> None:
    graph = grimp.build_graph("barnabas")
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise AssertionError(f"these modules import each other: {cycle}") from None
