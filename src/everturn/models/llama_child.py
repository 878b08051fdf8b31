"""A separate program: llama.cpp's server for one file of weights, started by ``local``.

It reads one line of JSON from its input (the settings), answers with one line (its address or an error), and
ends when its input closes, so that it cannot outlive its parent. The key comes over the pipe, because other
processes can read arguments and environment.

It imports nothing else of this package, so that it starts fast.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the library prints goes to the log, not between our lines
    settings = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, name="end with parent", daemon=True).start()
    try:
        server = _serve(settings)
    except (ImportError, RuntimeError, ValueError) as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
        os._exit(1)
    print(json.dumps({"address": server.listening_address}), file=answers, flush=True)
    threading.Event().wait()


def _serve(settings: dict[str, Any]) -> Any:
    """``Any``: the settings come as JSON, and the extra has no types."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.n_ctx = settings["context_tokens"]
    params.n_parallel = 1
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.cache_ram_mib = settings["cache_mib"]
    params.n_gpu_layers = 0
    params.endpoint_slots = False
    params.ui = False
    params.verbosity = 1
    params.offline = True
    # When idle, the server unloads the weights (most of its memory) and loads them for the next request.
    params.sleep_idle_seconds = settings["idle_s"]
    return xllamacpp.Server(params)


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(1):
        continue
    os._exit(0)


if __name__ == "__main__":
    main()
