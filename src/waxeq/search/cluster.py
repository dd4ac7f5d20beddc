"""A dask.distributed cluster, as far as it is needed to time kernels: which workers there are, and work for one."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

from waxeq.errors import ClusterError, UsageError

_CONNECT = 10.0
"""Seconds in which a scheduler must answer."""


class Answer(Protocol):
    """What will come back from a worker. `status` is "pending" until it is "finished", "error", "cancelled" or
    "lost"."""

    status: str

    def result(self, timeout: float | None = None) -> Any: ...


def _require_address(address: str) -> None:
    """Raise UsageError for what is no address of a scheduler: a client of it would end twenty seconds later, in a
    traceback."""
    from distributed.comm.addressing import get_address_host_port

    try:
        get_address_host_port(address)
    except (ValueError, TypeError) as e:
        raise UsageError(f"--scheduler {address}: {e}; write it as tcp://HOST:8786") from None


class Cluster:
    """A scheduler that answers."""

    def __init__(self, client: Any, address: str) -> None:
        self._client, self.address = client, address

    @staticmethod
    @contextmanager
    def at(address: str) -> Iterator[Cluster]:
        """The cluster of the scheduler at `address`, as tcp://host:8786. Raises UsageError where dask.distributed is
        not installed and for what is no address, ClusterError where no scheduler answers."""
        if find_spec("distributed") is None:
            raise UsageError("--scheduler needs dask.distributed; install it with pip install 'waxeq[distributed]'")
        from distributed import Client

        _require_address(address)
        logger = logging.getLogger("distributed")
        before = logger.level
        logger.setLevel(logging.CRITICAL)  # workers that leave are told of in our words
        try:
            try:
                client = Client(address, timeout=_CONNECT, set_as_default=False)
            except (OSError, ValueError, TypeError) as e:
                said = " ".join(str(e).split()) or type(e).__name__
                raise ClusterError(f"no scheduler answers at {address}: {said}") from e
            try:
                yield Cluster(client, address)
            finally:
                client.close(timeout=2.0)
        finally:
            logger.setLevel(before)

    def workers(self) -> frozenset[str]:
        """Addresses of the workers that are there now. Raises ClusterError when the scheduler is gone."""
        try:
            return frozenset(self._client.scheduler_info(n_workers=-1)["workers"])
        except (OSError, RuntimeError, KeyError) as e:
            raise ClusterError(f"the scheduler at {self.address} is gone; what came in before is kept") from e

    def submit(self, worker: str, function: Callable[..., Any], *args: Any) -> Answer:
        """Have one worker, and no other, call a function."""
        key = f"waxeq-{function.__name__}-{uuid.uuid4().hex}"
        return self._client.submit(
            function, *args, key=key, workers=[worker], allow_other_workers=False, pure=False, retries=0
        )

    def cancel(self, answers: Iterable[Answer]) -> None:
        """Nobody waits for these any more; what has begun goes on."""
        self._client.cancel(list(answers), force=True)
