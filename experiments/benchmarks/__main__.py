"""Run every benchmark and print one row each: `python -m experiments.benchmarks [--large]`."""

import argparse

from experiments.benchmarks import draws, preparing, step_time, windows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks", description=__doc__)
    parser.add_argument(
        "--large", action="store_true", help="10^8 windows and 2 GB of text too (4 GB of memory, many minutes)"
    )
    parser.add_argument("--only", choices=("draws", "windows", "step_time", "preparing"), help="one benchmark alone")
    arguments = parser.parse_args()
    print("Ratios are our time (or bytes) over the peer's: below 1, ours is less.\n")
    print("| what | ours | peer | ratio |")
    print("|---|---|---|---|")
    benchmarks = {
        "draws": lambda: draws.rows(large=arguments.large),
        "windows": windows.rows,
        "step_time": step_time.rows,
        "preparing": lambda: preparing.rows(large=arguments.large),
    }
    for name, rows in benchmarks.items():
        if arguments.only in (None, name):
            for row in rows():
                ratio = "–" if row.ratio is None else f"{row.ratio:.3g}"
                print(f"| {row.what} | {row.ours} | {row.peer} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
