"""Tasks with a tool whose backend is away, as `tests.integrations.outages:Tests/Outage-v0`."""

from toolorchestra.envs.registration import register

register("Tests/Outage-v0", "tests.sources:BrokenSource")
