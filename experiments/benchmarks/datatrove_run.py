"""datatrove's own pipeline, run by an environment of its own: `python datatrove_run.py FOLDER TOKENIZER`.

Reads the JSONL files and writes tokenized documents, nothing else; prints one line of JSON: seconds.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time


def main() -> None:
    """Run the pipeline with a task per file on all processors."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    folder, tokenizer = sys.argv[1:3]
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as out:
        executor = LocalPipelineExecutor(
            pipeline=[
                JsonlReader(folder),
                DocumentTokenizer(f"{out}/tokens", tokenizer_name_or_path=tokenizer, eos_token="<|endoftext|>"),
            ],
            tasks=len(os.listdir(folder)),
            workers=len(os.sched_getaffinity(0)),
            logging_dir=f"{out}/logs",
        )
        begun = time.perf_counter()
        executor.run()
        print(json.dumps({"seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main()
