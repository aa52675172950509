"""``python -m benchmarks [topic ...] [--quick] [--device cpu] [--save [folder]]``."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

import torch

from .harness import provenance, save

TOPICS = ("dense", "convolution", "multitier", "memory", "reflections", "flows", "gpu")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the topics asked for, print their tables, and save them only where told to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="topic", help=f"any of: {', '.join(TOPICS)} (default: all; gpu on CUDA only)")
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats: seconds instead of minutes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    parser.add_argument(
        "--save", nargs="?", const=Path("results"), type=Path, metavar="folder",
        help="also write one JSON file a topic (default folder: results); existing files are left alone",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    unknown = [topic for topic in options.topics if topic not in TOPICS]
    if unknown:
        parser.error(f"unknown topic {', '.join(unknown)}; choose from {', '.join(TOPICS)}")
    about = provenance(options.device)
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    on_cpu = torch.device(options.device).type == "cpu"
    for topic in options.topics or [topic for topic in TOPICS if topic != "gpu" or not on_cpu]:
        print(f"\n== {topic} ==")
        data = importlib.import_module(f"benchmarks.{topic}").run(quick=options.quick, device=torch.device(options.device))
        if options.save is not None:
            print("saved", save(topic, {"topic": topic, "quick": options.quick, **about, **data}, options.save))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
