"""What `vllm serve` is to those who start it: it takes a port, is healthy after a while, and names its model.

SERVES is the name that it gives its model, ENDS after how many seconds it ends by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--model")
parser.add_argument("--host")
parser.add_argument("--port", type=int)
given, _ = parser.parse_known_args()
serves = os.environ.get("SERVES", given.model)


class FakeVllm(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        said = json.dumps({"data": [{"id": serves}]} if self.path == "/v1/models" else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        pass


server = HTTPServer((given.host, given.port), FakeVllm)
print("up", flush=True)
if "ENDS" in os.environ:
    threading.Timer(float(os.environ["ENDS"]), lambda: os._exit(3)).start()
server.serve_forever()
