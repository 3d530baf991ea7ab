"""`make diagram`: the rooms of app/ by floor, and which room imports which."""

import tomllib

import grimp

from tests.scripts.trace import ROOT


def main() -> None:
    """Print it as text."""
    graph = grimp.build_graph("app", cache_dir=None)
    rooms = sorted(graph.find_children("app"))
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    floors = next(c["layers"] for c in settings["contracts"] if c["type"] == "layers")
    for number, floor in zip(range(len(floors), 0, -1), floors, strict=True):
        print(f"floor {number}")
        for name in floor.replace("(", "").replace(")", "").split(" | "):
            room = f"app.{name}"
            if room in rooms:
                below = [r[4:] for r in rooms if r != room and _imports(graph, room, r)]
                print(f"  {name:<10} -> {', '.join(below) or 'nothing'}")


def _imports(graph: grimp.ImportGraph, one: str, other: str) -> bool:
    return graph.direct_import_exists(importer=one, imported=other, as_packages=True)


if __name__ == "__main__":
    main()
