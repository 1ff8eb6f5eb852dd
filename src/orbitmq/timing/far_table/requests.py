"""Which requests there are about the far table: their codes, bodies and answers.

Rules of this file
1. A table; nothing is decided here.
"""

from __future__ import annotations

from typing import Final

from orbitmq.protocol.far_table import (
    AddFiles,
    AdvanceShare,
    BeginShare,
    ClaimShare,
    FilesChanged,
    FilesPage,
    FilesQuery,
    FindRows,
    JobOpened,
    OpenJob,
    RecallRows,
    RecallsPage,
    RecallsQuery,
    ReleaseShare,
    ReplaceFiles,
    RowsFound,
    RowsRecalled,
    ShareChanged,
    ShareReleased,
    SharesClaimed,
    StatusQuery,
    TableAnswer,
    TableRequest,
    TableStatus,
)
from orbitmq.protocol.remoting.codes import RequestCode

AnyRequest = TableRequest | StatusQuery

CODES: Final[dict[type[AnyRequest], RequestCode]] = {
    StatusQuery: RequestCode.FAR_TABLE_STATUS,
    FilesQuery: RequestCode.FAR_TABLE_FILES,
    RecallsQuery: RequestCode.FAR_TABLE_RECALLS,
    OpenJob: RequestCode.FAR_TABLE_OPEN,
    AddFiles: RequestCode.FAR_TABLE_ADD,
    ReplaceFiles: RequestCode.FAR_TABLE_REPLACE,
    ClaimShare: RequestCode.FAR_TABLE_CLAIM,
    BeginShare: RequestCode.FAR_TABLE_BEGIN,
    AdvanceShare: RequestCode.FAR_TABLE_ADVANCE,
    RecallRows: RequestCode.FAR_TABLE_RECALL,
    FindRows: RequestCode.FAR_TABLE_FIND,
    ReleaseShare: RequestCode.FAR_TABLE_RELEASE,
}

ANSWERS: Final[dict[type[AnyRequest], type[TableAnswer]]] = {
    StatusQuery: TableStatus,
    FilesQuery: FilesPage,
    RecallsQuery: RecallsPage,
    OpenJob: JobOpened,
    AddFiles: FilesChanged,
    ReplaceFiles: FilesChanged,
    ClaimShare: SharesClaimed,
    BeginShare: ShareChanged,
    AdvanceShare: ShareChanged,
    RecallRows: RowsRecalled,
    FindRows: RowsFound,
    ReleaseShare: ShareReleased,
}
