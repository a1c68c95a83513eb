"""Several servers of one model behind one sampler: each episode stays with one of them, and the others go on when it
dies.

An episode's turns go to the server that has its past in the cache. A new one goes to the server with the fewest
episodes. Where a turn ends in an Outage the server is left alone until the next weights are handed out; if it takes
them it is used again. A run ends when no server takes new weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from toolorchestra.agents.engines import without

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as err:
    raise without(err) from None

from toolorchestra.agents.engines.base import NONE, Adapter, EngineLost, Sample, SamplingParams
from toolorchestra.agents.engines.vllm_served import ServedSampler
from toolorchestra.envs.base.errors import ConfigError, Outage

MOST_MISSED = 3
"""Weights in a row that a server may miss; then nobody waits for it any more."""


def server_urls(text: str) -> list[str]:
    """The servers of model.server, which stands for one, or for several with commas between them."""
    found = [part.strip() for part in text.split(",")]
    if "" in found or len(set(found)) < len(found):
        raise ConfigError(
            f"model.server is http://HOST:PORT/v1, or several with commas between them, each of them once; got {text!r}"
        )
    return found


class SeveralServers:
    """A sampler over servers that are reached by samplers of their own. All of these hand weights over through the same
    folder."""

    suspends = True

    def __init__(self, servers: Sequence[ServedSampler], say: Callable[[str], None] = print) -> None:
        self.servers, self._say = list(servers), say
        self._of_session: dict[str, ServedSampler] = {}
        self._missed: Counter[ServedSampler] = Counter()
        self._up: set[ServedSampler] = set(servers)
        """Those that nothing bad was heard of since the last weights."""
        self._episodes: Counter[ServedSampler] = Counter()
        self._probes = 0
        self.takes_adapters = all(server.takes_adapters for server in servers)
        self.version = NONE

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str) -> Sample:
        """See Sampler. What breaks a turn is an Outage, and its server is not asked for more."""
        server = self._server_of(session)
        if not session:
            self._episodes[server] += 1
        try:
            return await server.sample(prompt, params, session)
        except Outage as err:
            self._leave(server, err)
            raise
        finally:
            if not session:
                self._episodes[server] -= 1

    def release(self, session: str) -> None:
        """See Sampler."""
        if (server := self._of_session.pop(session, None)) is not None:
            self._episodes[server] -= 1
            server.release(session)

    def _server_of(self, session: str) -> ServedSampler:
        """The one that has the session's past, or else the one with the fewest episodes; of equal ones the first."""
        known = self._of_session.get(session)
        if known is not None and known in self._up:
            return known
        if not self._up:
            raise Outage(f"none of {len(self.servers)} servers is left until the next weights are handed out")
        self.release(session)
        chosen = min((s for s in self.servers if s in self._up), key=lambda s: self._episodes[s])
        if session:
            self._of_session[session] = chosen
            self._episodes[chosen] += 1
        return chosen

    def _leave(self, server: ServedSampler, err: Outage) -> None:
        if server in self._up:
            self._up.discard(server)
            self._say(f"{server.config.base_url} is left alone until the next weights: {err}")
        if not self._up:
            self.version = NONE  # so that the engine tries to hand weights out before it asks again

    def probe(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sample]:
        """See Probed. The prompts go round the servers, so that several calls together ask all of them: where one has
        other weights by mistake, its share of the gap shows."""
        servers = [s for s in self.servers if s in self._up]
        numbers = range(self._probes, self._probes + len(prompts))
        self._probes += len(prompts)
        with ThreadPoolExecutor(len(prompts)) as threads:
            asked = zip(prompts, numbers, strict=True)
            waiting = [threads.submit(servers[n % len(servers)].probe, [p], params) for p, n in asked]
            return [made.result()[0] for made in waiting]

    # -- weights -----------------------------------------------------------------------------------------------------

    def sync(self, weights: Iterable[tuple[str, Tensor]], version: int, adapter: Adapter | None = None) -> None:
        """See Sampler. Whole weights are written once, and all servers read them at the same time."""
        if adapter is None:
            self.servers[0].write(weights)
        asked = [s for s in self.servers if self._missed[s] < MOST_MISSED]
        with ThreadPoolExecutor(len(self.servers)) as threads:
            problems = dict(zip(asked, threads.map(lambda s: _problem(s, version, adapter), asked), strict=True))
        for server, problem in problems.items():
            self._missed[server] = self._missed[server] + 1 if problem else 0
            if problem:
                last = self._missed[server] == MOST_MISSED
                more = "; nobody waits for it any more" if last else f" ({self._missed[server]} of {MOST_MISSED})"
                self._say(f"{server.config.base_url} missed new weights{more}: {problem}")
        self._up = {server for server, problem in problems.items() if not problem}
        if not self._up:
            self.version = NONE
            raise EngineLost(
                f"none of {len(self.servers)} servers took new weights; the last one said: "
                f"{next(reversed(problems.values()), 'nothing')}. Start them again, and go on with resume=True",
                command_line="--resume",
            )
        self._of_session.clear()
        self._episodes.clear()
        self.version = version

    def sleep(self) -> None:
        """Nothing: the servers have devices of their own."""

    # -- keeping -----------------------------------------------------------------------------------------------------

    def random_state(self) -> Tensor:
        """The servers' cannot be read: a resumed run draws anew."""
        return torch.tensor([0])

    def set_random_state(self, state: Tensor) -> None:
        """See random_state()."""

    def stats(self) -> Mapping[str, float]:
        """See Sampler. Hits over all servers, and how many of these answer."""
        prompt = sum(s.prompt_tokens for s in self.servers)
        cached = sum(s.cached_tokens for s in self.servers)
        for server in self.servers:
            server.stats()
        return {"prefix_hits": cached / prompt if prompt else 0.0, "servers": float(len(self._up))}

    def close(self) -> None:
        """Close the connections. The servers go on."""
        for server in self.servers:
            server.close()


def _problem(server: ServedSampler, version: int, adapter: Adapter | None) -> str:
    """Why a server did not take what was written; "" where it did. What is set up wrongly is raised."""
    try:
        server.take_written(version, adapter)
    except Outage as err:
        return str(err)
    return ""
