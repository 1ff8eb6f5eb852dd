"""One exception tree.

Rules of this file
1. Every error says what happened, where, why if known, and what to do about it (`remedy`).
2. A class exists because somebody catches it; there are no classes for their names' sake.
3. Errors of a peer (`RemoteError`) are kept apart from errors of this process.
"""

from __future__ import annotations


class OrbitError(Exception):
    """Base of all errors raised by orbitmq. `remedy` is a sentence that tells the reader what to do."""

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} ({self.remedy})" if self.remedy else text


def words_of(error: BaseException) -> str:
    """What an error says. Some of connections say nothing, those of an ended handshake of TLS among them: then what they mean."""
    if text := str(error):
        return text
    if isinstance(error, TimeoutError):
        return "it took too long"
    return "the other end closed the connection" if isinstance(error, ConnectionError) else type(error).__name__


class ConfigurationError(OrbitError):
    """A setting is unknown, unreadable, out of range, or promises what is not built yet."""


class PortTakenError(ConfigurationError):
    """Another program listens on the port."""


class ProtectedKeyError(ConfigurationError):
    """A remote request tried to change a key that only the operator may change (answered NO_PERMISSION)."""


class ProtocolError(OrbitError):
    """Bytes from a peer break the protocol."""


class FrameError(ProtocolError):
    """A remoting frame is malformed; the connection that sent it cannot be used any longer."""


class Http2Error(ProtocolError):
    """What came breaks HTTP/2, or a bound, in a way that its connection does not survive. `code`: the error code of the GOAWAY."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class HpackError(ProtocolError):
    """A block of HTTP/2 header fields is malformed; nothing on its connection can be read any longer."""


class HeaderListTooLarge(ProtocolError):
    """A list of HTTP/2 header fields is larger than allowed; only what it belongs to is refused."""


class ReplicationFrameError(ProtocolError):
    """What a master or a slave sent is no frame of replication; its connection cannot be used any longer."""


class RecordError(ProtocolError):
    """Bytes are not a message record, or a field of a message does not fit its place in one."""


class DamagedRecordError(RecordError):
    """One record among many is damaged: `position` is where it begins in the data given, `why` what is wrong with it."""

    def __init__(self, position: int, why: str, *, remedy: str | None = None) -> None:
        super().__init__(f"the record at position {position} is damaged: {why}", remedy=remedy)
        self.position = position
        self.why = why


class StoreError(OrbitError):
    """The message store cannot do what was asked."""


class StoreLockedError(StoreError):
    """Another process holds the store directory."""


class StoreDamagedError(StoreError):
    """The store is damaged in a place that is not its torn end; nothing was changed."""


class LogDamagedError(StoreDamagedError):
    """The log is damaged from `position` on; it is known to go on up to `until`, where a record begins or the log ends."""

    def __init__(
        self, message: str, position: int, until: int, *, may_pass: bool = False, remedy: str | None = None
    ) -> None:
        """`may_pass`: the store can be opened without what is damaged, and what is derived lacks it then."""
        super().__init__(message, remedy=remedy)
        self.position = position
        self.until = until
        self.may_pass = may_pass


class LogFileLostError(LogDamagedError):
    """A file of the log is missing, or was cut short."""


class TimerIndexIncompleteError(StoreError):
    """The index of pending timers is being made again from the log; what was asked for may not be in it yet."""


class StoreUnwritableError(StoreError):
    """The store accepts no messages at present: disk full, failed write or fsync, or shut down."""


class JobRefusedError(StoreError):
    """Work for a thread found no place there. Nothing of it was done; it may be asked for again."""


class ClientError(OrbitError):
    """A client call failed."""


class ConnectionLostError(ClientError):
    """The connection could not be made, or closed before the answer arrived.

    `request_sent` is False when nothing of the request left the process: it was certainly not carried out.
    """

    def __init__(self, message: str, *, request_sent: bool = True, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.request_sent = request_sent


class RequestTimeoutError(ClientError):
    """No answer within the time allowed. The request may or may not have been carried out."""


class NotFoundError(ClientError):
    """The cluster, broker, group or topic asked for does not exist."""


class RouteNotFoundError(NotFoundError):
    """The name servers know no broker for a topic."""


class MasterAwayError(RouteNotFoundError):
    """The topic is there, and at present no broker takes its messages, or not the one to which the key of a `once` leads: masters are not
    registered."""


class DataLostError(ClientError):
    """Messages that a read has to give are not there any more: removed by retention, damaged, or the queue began anew.

    `may_return` is True when it is the queue that is not there, with its broker perhaps.
    """

    def __init__(self, message: str, *, may_return: bool = False, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.may_return = may_return


class MessageIllegalError(ClientError):
    """A message breaks a rule of the protocol; sending it again will not help. Nothing left the process."""


class TimersMissingError(ClientError):
    """A broker would deliver at once what was sent with a due time; nothing was sent to it."""


class SendFailedError(ClientError):
    """Every attempt to send a message failed.

    `maybe_stored` is True when at least one attempt ended without an answer, or with the answer that nobody knows (SYSTEM_ERROR): then the
    message may be stored.
    """

    def __init__(self, message: str, *, maybe_stored: bool, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.maybe_stored = maybe_stored


class RemoteError(ClientError):
    """A server answered with an error code. `code` is the protocol's response code, `remark` its text."""

    def __init__(self, code: int, remark: str, *, address: str = "", remedy: str | None = None) -> None:
        where = f" from {address}" if address else ""
        super().__init__(f"response code {code}{where}: {remark}", remedy=remedy)
        self.code = code
        self.remark = remark
        self.address = address


class StaleEpochError(RemoteError):
    """An idempotent send belongs to an epoch that its scope has left behind: another writer has taken over. Not stored."""


class SparkUnavailableError(OrbitError):
    """This environment lacks what a Spark session needs: the package, a Java, or formats that can be found."""


class SparkJobError(OrbitError):
    """A job of Spark failed; the message has the reason that a task gave."""


class SparkWorkerError(SparkJobError):
    """The Python of Spark's workers cannot run orbitmq: it is missing, has none, or another release or another version of Python."""


class PayloadUnreadableError(OrbitError):
    """The body of a message is not what its schema says, and nobody asked for such rows as rows."""


class SchemaUnavailableError(OrbitError):
    """A schema registry is away, or has not what was asked for. Nothing was read or written by it."""
