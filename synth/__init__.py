"""Makes tool domains from specs or sentences, and proves their tasks by running them."""
