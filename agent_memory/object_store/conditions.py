"""`Conditions`: what a server does with each kind of precondition."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

ADVICE = "if only one process writes here, set the storage option allow_single_writer"


class Condition(Enum):
    """What a server does with one kind of precondition. The value, except of `KEPT`, is the text of the refusal."""

    KEPT = ""
    IGNORED = "this server ignores preconditions, so concurrent writers would lose each other's writes"
    NEVER_MET = "this server refuses preconditions that hold, so no conditional write would succeed"
    NOT_TAKEN = "this server does not take conditional requests"
    NOT_ATOMIC = (
        "this server keeps preconditions of a request alone, but not in a race, so concurrent writers would lose each"
        " other's writes"
    )
    NOT_IF_MISSING = (
        "this server ignores the precondition if the file was deleted, so a writer could bring a deleted or forgotten"
        " text back"
    )
    NOT_RACED = (
        "this server's precondition cannot be tried in a race, because it does not keep the preconditions of writes"
    )
    NOT_SENT = "this engine has no conditional delete, and a delete without one may remove another writer's change"
    NOT_TRIED = "this server's preconditions have not been tried yet"


@dataclass(frozen=True)
class Conditions:
    """The results of a trial of a server.

    Attributes:
        create: a PUT with ``If-None-Match: *``.
        swap: a PUT with ``If-Match``.
        delete: a DELETE with ``If-Match``.
        copy: the copy of a part with ``x-amz-copy-source-if-match``.
        complete: the completion of a multipart upload of copied parts with ``If-Match``.
        create_upload: the completion of a multipart upload of new parts with ``If-None-Match: *``.
        swap_upload: the completion of a multipart upload of new parts with ``If-Match``.
    """

    create: Condition = Condition.NOT_TRIED
    swap: Condition = Condition.NOT_TRIED
    delete: Condition = Condition.NOT_TRIED
    copy: Condition = Condition.NOT_TRIED
    complete: Condition = Condition.NOT_TRIED
    create_upload: Condition = Condition.NOT_TRIED
    swap_upload: Condition = Condition.NOT_TRIED

    @property
    def keeps_uploads(self) -> bool:
        """Whether a large object can be appended to in parts."""
        return self.copy is self.complete is Condition.KEPT

    @property
    def may_keep_uploads(self) -> bool:
        """Whether a large object can be appended to in parts, or this was not tried yet."""
        return self.keeps_uploads or self.complete is Condition.NOT_TRIED
