"""Tasks with a tool whose backend is away, as `tests.doors.outages:Tests/Outage-v0`."""

from toolorchestra.envs.registration import register

register("Tests/Outage-v0", "tests.sources:BrokenSource")
