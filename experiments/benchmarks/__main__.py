"""Run every benchmark and print one row each."""

from experiments.benchmarks import draws, step_time


def main() -> None:
    print("| what | ours | peer | ratio |")
    print("|---|---|---|---|")
    for row in [*draws.rows(), *step_time.rows()]:
        print(f"| {row.what} | {row.ours} | {row.peer} | {row.ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
