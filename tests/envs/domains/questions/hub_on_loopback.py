"""The part of the Hugging Face hub's protocol by which data sets are read, on a real socket.

Run as a program it stands for the hub while it loads what it was asked for: the library reads HF_ENDPOINT once, early.

    python -m tests.envs.domains.questions.hub_on_loopback NAME FILE-OF-THE-SET FOLDER-FOR-CACHES WANTED...
"""

from __future__ import annotations

import http.server
import json
import os
import sys
import threading
from pathlib import Path

from toolorchestra.envs.domains.questions.datasets import PINNED

OTHER = "0" * 40


class Hub(http.server.BaseHTTPRequestHandler):
    """One set, of one file, under its revisions; the set named "gated" is shown to nobody."""

    name: str
    file: Path
    asked: list[str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        type(self).asked.append(path)
        revision = next((r for r in (PINNED.get(self.name, OTHER), OTHER) if r in path), "")
        if "gated" in path:
            self._reply(401, b"", {"X-Error-Code": "GatedRepo"})
        elif self.name not in path or not revision:
            self._reply(404, b"", {"X-Error-Code": "RevisionNotFound" if self.name in path else "RepoNotFound"})
        elif path.endswith(f"/revision/{revision}"):
            about = {"id": self.name, "sha": revision, "siblings": [{"rfilename": self.file.name}], "tags": []}
            self._reply(200, json.dumps(about).encode())
        elif "/tree/" in path and not path.endswith("/data"):
            entry = {"type": "file", "path": self.file.name, "size": self.file.stat().st_size, "oid": "a" * 40}
            self._reply(200, json.dumps([entry]).encode())
        elif path.endswith(f"/{self.file.name}"):
            self._reply(200, self.file.read_bytes(), {"X-Repo-Commit": revision, "ETag": f'"{revision}"'})
        else:
            self._reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": revision})

    do_HEAD = do_GET

    def _reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def main(name: str, file: str, caches: str, *wanted: str) -> None:
    """Print what each of the wanted sets came to, as JSON, and what the hub was asked for."""
    Hub.name, Hub.file, Hub.asked = name, Path(file), []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ |= {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": caches}
    os.environ |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HF_TOKEN": ""}
    from toolorchestra.envs.base.errors import ConfigError
    from toolorchestra.envs.domains.questions.datasets import load

    for where in wanted:
        before = len(Hub.asked)
        try:
            got = load(where)
        except ConfigError as err:
            said = {"error": str(err)}
        else:
            rows = {key: [q.text, q.answer.text, q.subject] for key, q in got.questions.items()}
            said = {"where": got.where, "rows": rows, "images": got.skipped_images}
        print(json.dumps({**said, "asked": Hub.asked[before:]}))
    server.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
