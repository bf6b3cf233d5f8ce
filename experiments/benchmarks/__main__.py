"""Run every benchmark and print one row each: `python -m experiments.benchmarks [--large]`."""

import argparse

from experiments.benchmarks import draws, neighbors, policy, preparing, step_time, windows

BENCHMARKS = {
    "draws": lambda large: draws.rows(large=large),
    "windows": lambda large: windows.rows(),
    "neighbors": lambda large: neighbors.rows(),
    "policy": lambda large: policy.rows(),
    "step_time": lambda large: step_time.rows(large=large),
    "preparing": lambda large: preparing.rows(large=large),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks", description=__doc__)
    parser.add_argument(
        "--large", action="store_true", help="10^8 windows and 2 GB of text too (4 GB of memory, many minutes)"
    )
    parser.add_argument("--only", choices=sorted(BENCHMARKS), help="one benchmark alone")
    arguments = parser.parse_args()
    print("Ratios are our time (or bytes) over the peer's: below 1, ours is less.\n")
    print("| what | ours | peer | ratio |")
    print("|---|---|---|---|")
    for name, rows in BENCHMARKS.items():
        if arguments.only in (None, name):
            for row in rows(arguments.large):
                ratio = "–" if row.ratio is None else f"{row.ratio:.3g}"
                print(f"| {row.what} | {row.ours} | {row.peer} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
