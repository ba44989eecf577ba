"""`Trial`: finds out on scratch objects which preconditions a server enforces, before a write relies on them.

The server enforces a precondition if it does all of this:

1. it refuses a change whose precondition does not hold, and makes a change whose precondition holds (``alone``);
2. of several changes that race on one precondition, it makes only one (``race``).

An unanswered request is repeated, because only answers count. If a refusal may answer a repetition, the state of the
scratch object decides, because the object has no other writer.

===========  =========================================================================================================
module       content
===========  =========================================================================================================
``results``  `TrialResults`: what a server does with each kind of precondition; `TriedServer` remembers it for an hour
``alone``    `WriteTrial`, `UploadTrial`: send one request at a time
``race``     `Races`: sends several changes at once
``scratch``  `ScratchObject`: the object of a trial, and uploads of it
===========  =========================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

from agent_memory.object_store.engine import ObjectStore, SupportsMultipart
from agent_memory.object_store.retry import Attempts, Cleanup
from agent_memory.object_store.trial.alone import UploadTrial, WriteTrial
from agent_memory.object_store.trial.race import CREATES, DELETES, SWAPS, RacedChanges, Races, completions
from agent_memory.object_store.trial.results import TrialResult, TrialResults, tried_server
from agent_memory.object_store.trial.scratch import scratch_object


class Trial:
    """The trial of one server; each kind of precondition is tried before the first operation that relies on it.

    The methods take the name of an object, because the scratch objects lie in its directory, where the same permissions
    apply. They do nothing if the results are known. A trusted server (`ObjectStore.is_trusted`) is not tried.

    Args:
        store: the engine.
        cleanup: removes a scratch object if the trial fails.
        has_other_writers: whether the completions of uploads are raced, too; a single writer needs no race.

    Attributes:
        known: the results so far.
    """

    def __init__(self, store: ObjectStore, cleanup: Cleanup, *, has_other_writers: bool) -> None:
        self._store = store
        self._cleanup = cleanup
        self._has_other_writers = has_other_writers
        unsent = {} if store.conditional_delete else {"delete": TrialResult.NOT_SENT}
        self.known = TrialResults(**unsent)

    async def try_writes(self, name: str, attempts: Attempts) -> TrialResults:
        """Try conditional PUTs and DELETEs.

        Raises:
            PermanentError: the server stores other bytes or metadata than it was sent.
        """
        if self.known.swap is TrialResult.NOT_TRIED:
            trusted = await attempts.until_answered(self._store.is_trusted)
            found = self._trusted() if trusted else await self._remembered_writes(name, attempts)
            self.known = replace(self.known, create=found.create, swap=found.swap, delete=found.delete)
        return self.known

    async def try_deletes(self, name: str, attempts: Attempts) -> TrialResults:
        """Try a conditional DELETE if `try_writes` did not, because the credentials had no permission to delete.

        Raises:
            PermanentError: the credentials still have no permission.
        """
        if self.known.delete is TrialResult.NOT_TRIED:
            delete = await self._write_trial(name, attempts).try_delete()
            self.known = await self._raced(name, attempts, replace(self.known, delete=delete), {"delete": DELETES})
        return self.known

    async def try_copies(self, name: str, attempts: Attempts) -> TrialResults:
        """Try conditional copies of parts, and conditional completions of such uploads.

        ``name`` is an object that is large enough to be a part.

        Raises:
            NotFound: the object no longer exists.
        """
        store = self._store
        if self.known.complete is TrialResult.NOT_TRIED and isinstance(store, SupportsMultipart):
            copy = complete = TrialResult.ENFORCED
            if not await attempts.until_answered(store.is_trusted):
                copy, complete = await UploadTrial(store, name, self._cleanup, attempts).try_copies()
                if complete is TrialResult.ENFORCED:
                    complete = await self._raced_completions(store, name, attempts, absent=False)
            self.known = replace(self.known, copy=copy, complete=complete)
        return self.known

    async def try_new_parts(self, name: str, attempts: Attempts, condition: Literal["create", "swap"]) -> TrialResults:
        """Try the completion of a multipart upload of new parts with one kind of condition.

        "create" is ``If-None-Match: *``, "swap" is ``If-Match``.
        """
        store, field = self._store, f"{condition}_upload"
        if getattr(self.known, field) is TrialResult.NOT_TRIED and isinstance(store, SupportsMultipart):
            found = TrialResult.ENFORCED
            if not await attempts.until_answered(store.is_trusted):
                found = await UploadTrial(store, name, self._cleanup, attempts).try_new_parts(condition)
                if found is TrialResult.ENFORCED:
                    found = await self._raced_completions(store, name, attempts, absent=condition == "create")
            self.known = replace(self.known, **{field: found})
        return self.known

    def _trusted(self) -> TrialResults:
        enforced = TrialResult.ENFORCED
        return TrialResults(enforced, enforced, enforced if self._store.conditional_delete else TrialResult.NOT_SENT)

    async def _remembered_writes(self, name: str, attempts: Attempts) -> TrialResults:
        server = tried_server(self._store)
        if server.writes.swap is TrialResult.NOT_TRIED:
            alone = await self._write_trial(name, attempts).try_all()
            kinds = {"create": CREATES, "swap": SWAPS, "delete": DELETES}
            server.writes = await self._raced(name, attempts, alone, kinds)
            server.bare_etags = self._store.bare_etags
        self._store.bare_etags = server.bare_etags
        return server.writes

    async def _raced(
        self, name: str, attempts: Attempts, alone: TrialResults, kinds: Mapping[str, RacedChanges]
    ) -> TrialResults:
        """The results of single requests after a race of the enforced kinds; a DELETE races PUTs with ``If-Match``."""
        enforced = TrialResult.ENFORCED
        raced = {field: kind for field, kind in kinds.items() if getattr(alone, field) is enforced}
        if alone.swap is not enforced:
            raced.pop("delete", None)
        found = replace(alone, **await self._races(name, attempts).run(raced))
        can_be_raced = found.swap is enforced or found.delete is not enforced
        return found if can_be_raced else replace(found, delete=TrialResult.NOT_RACED)

    async def _raced_completions(
        self, store: SupportsMultipart, name: str, attempts: Attempts, *, absent: bool
    ) -> TrialResult:
        """The result of a race of completed uploads; each of the two conditions is raced once."""
        if not self._has_other_writers:
            return TrialResult.ENFORCED
        uploads = tried_server(store).uploads
        if absent not in uploads:
            kind = completions(store, self._cleanup, attempts, absent=absent)
            uploads[absent] = (await self._races(name, attempts).run({"uploads": kind}))["uploads"]
        return uploads[absent]

    def _write_trial(self, name: str, attempts: Attempts) -> WriteTrial:
        return WriteTrial(self._store, name, self._cleanup, attempts)

    def _races(self, name: str, attempts: Attempts) -> Races:
        return Races(partial(scratch_object, self._store, name, self._cleanup, attempts), attempts)
