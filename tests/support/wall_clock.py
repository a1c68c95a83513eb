"""A wall clock that a test sets for the processes that it starts, by a library between them and the system's.

clock = WallClock(folder)
subprocess.Popen(..., env={**os.environ, **clock.env})
clock.set(-3600)  # an hour back, from now on
"""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long off(void) {
  long by = 0;
  FILE *file = fopen(getenv("WALL_CLOCK"), "r");
  if (file) { if (fscanf(file, "%ld", &by) != 1) by = 0; fclose(file); }
  return by;
}
int clock_gettime(clockid_t which, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int done = real(which, at);
  if (which == CLOCK_REALTIME) at->tv_sec += off();
  return done;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}
"""


class WallClock:
    """Seconds by which a process's clock is off, and the variables that put it there."""

    def __init__(self, folder: Path) -> None:
        self._file, source, library = folder / "off", folder / "clock.c", folder / "clock.so"
        source.write_text(SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self.set(0)
        self.env = {"LD_PRELOAD": str(library), "WALL_CLOCK": str(self._file)}

    def set(self, seconds: int) -> None:
        """Set it so many seconds forward, or back."""
        made = self._file.with_suffix(".new")
        made.write_text(str(seconds))
        made.replace(self._file)
