"""Somebody else's server of models."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler


class StrangersAnswers(BaseHTTPRequestHandler):
    """Healthy, and of no model of ours."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""
