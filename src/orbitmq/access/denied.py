"""What a caller is told who may not do what it asked for."""

from __future__ import annotations

from orbitmq.errors import OrbitError
from orbitmq.limits.broker import REMARK_CHARS_MAX
from orbitmq.protocol.remoting.codes import ResponseCode


class Denied(OrbitError):
    """`code` and `remark` of the answer, which is given after `wait_ms`. The remark says who may not do what from where; it never holds a
    secret or a signature."""

    def __init__(self, code: ResponseCode, remark: str, *, wait_ms: int = 0) -> None:
        if len(remark) > REMARK_CHARS_MAX:  # it may quote a name that is a megabyte long
            remark = f"{remark[: REMARK_CHARS_MAX // 2]} ... {remark[-REMARK_CHARS_MAX // 4 :]}"
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.wait_ms = wait_ms
