"""The operating system's files behind the seam: positioned, whole or an error, durable names, one owner."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.errors import StoreLockedError
from orbitmq.store import files as files_module
from orbitmq.store.files import OsFiles, replace_content

FILES = OsFiles()


def test_positioned_writes_and_reads(tmp_path: Path) -> None:
    file = FILES.open(tmp_path / "f", create=True)
    file.pwrite(b"hello", 10)
    file.pwritev([b"ab", memoryview(b"cd"), bytearray(b"e")], 0)
    assert file.size() == 15
    assert file.pread(100, 0) == b"abcde" + bytes(5) + b"hello"
    assert file.pread(5, 100) == b""
    file.close()
    file.close()


def test_a_write_goes_on_until_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: real(fd, b"".join(parts)[:4], at))
    file = FILES.open(tmp_path / "f", create=True)
    file.pwrite(b"0123456789", 0)
    file.pwritev([b"abc", b"defgh"], 10)
    assert file.pread(100, 0) == b"0123456789abcdefgh"


def test_a_write_without_progress_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([2, 0])
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: next(answers))
    with pytest.raises(OSError, match="no progress"):
        FILES.open(tmp_path / "f", create=True).pwrite(b"0123", 0)


def test_more_parts_than_one_call_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "WRITEV_PARTS_MAX", 3)
    file = FILES.open(tmp_path / "f", create=True)
    file.pwritev([bytes([n]) for n in range(10)], 5)
    assert file.pread(10, 5) == bytes(range(10))


@pytest.mark.parametrize(("offset", "size"), [(0, 10), (3, 4), (5, 100), (10, 5), (0, 0)])
def test_a_punched_range_reads_as_zeros_and_the_size_stays(tmp_path: Path, offset: int, size: int) -> None:
    file = FILES.open(tmp_path / "f", create=True)
    file.pwrite(b"x" * 10, 0)
    file.punch(offset, size)
    assert file.size() == 10
    expected = bytearray(b"x" * 10)
    expected[offset : offset + size] = bytes(len(expected[offset : offset + size]))
    assert file.pread(10, 0) == expected


def test_punching_takes_no_room(tmp_path: Path) -> None:
    file = FILES.open(tmp_path / "f", create=True)
    file.truncate(1 << 20)
    file.pwrite(b"x" * 5_000, 100_000)
    blocks = (tmp_path / "f").stat().st_blocks
    file.punch(50_000, 500_000)
    assert (tmp_path / "f").stat().st_blocks <= blocks, "nothing is written where nothing was"
    assert not any(file.pread(1 << 20, 0))


def test_holes_are_skipped(tmp_path: Path) -> None:
    file = FILES.open(tmp_path / "f", create=True)
    file.truncate(1 << 20)
    assert list(file.data_ranges(0)) == [] or list(file.data_ranges(0)) == [(0, 1 << 20)]
    file.pwrite(b"x", 300_000)
    ranges = list(file.data_ranges(0))
    assert any(begin <= 300_000 < end for begin, end in ranges)
    assert list(file.data_ranges(1 << 20)) == []


def test_mappings_see_later_writes(tmp_path: Path) -> None:
    file = FILES.open(tmp_path / "f", create=True)
    file.allocate(0, 4096)
    assert file.size() == 4096
    mapped, writable = file.map_read(), file.map_write(4096)
    file.pwrite(b"one", 0)
    writable[10:13] = b"two"
    assert mapped[:3] == b"one"
    assert file.pread(3, 10) == b"two"
    with pytest.raises(TypeError):
        mapped[0] = 1


def test_atomic_replacement_with_and_without_backup(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    FILES.write_atomic(path, b"one", backup=True)
    assert not path.with_name("table.json.bak").exists()
    FILES.write_atomic(path, b"two", backup=True)
    assert (path.read_bytes(), path.with_name("table.json.bak").read_bytes()) == (b"two", b"one")
    path.with_name("table.json.tmp").write_bytes(b"left over and longer")
    FILES.write_atomic(path, b"three")
    assert path.read_bytes() == b"three"
    assert FILES.list_dir(tmp_path) == ["table.json", "table.json.bak"]


def test_private_content_is_private_from_the_first_byte_on(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(b"open to all")
    left_over = path.with_name("table.json.tmp")
    left_over.write_bytes(b"open as well")
    with left_over.open("rb") as opened_before:
        replace_content(FILES, path, b"secret", private=True)
        assert opened_before.read() == b"open as well"
    assert path.read_bytes() == b"secret"
    assert path.stat().st_mode & 0o777 == 0o600
    assert FILES.list_dir(tmp_path) == ["table.json"]


def test_directories(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    FILES.make_dirs(deep)
    FILES.make_dirs(deep)
    FILES.sync_dir(deep)
    FILES.open(deep / "f", create=True).close()
    assert FILES.list_dir(deep) == ["f"]
    assert FILES.list_dir(tmp_path / "absent") == []
    assert FILES.is_dir(deep)
    FILES.remove(deep / "f")
    FILES.remove_tree(tmp_path / "a")
    assert not FILES.exists(deep)
    with pytest.raises(FileNotFoundError):
        FILES.open(tmp_path / "absent")


def test_a_second_process_is_refused_and_the_lock_ends_with_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = "import fcntl,os,sys; fd=os.open(sys.argv[1],os.O_RDWR|os.O_CREAT); fcntl.lockf(fd,fcntl.LOCK_EX,1,0); print(1,flush=True); sys.stdin.read()"  # noqa: E501
    other = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    with pytest.raises(StoreLockedError, match="stop that broker, or give this one a directory of its own"):
        FILES.lock(path)
    other.kill()
    other.wait()
    lock = FILES.lock(path)
    assert path.read_bytes() == b"lock"
    lock.release()
    lock.release()


def test_a_claim_on_a_directory_holds_in_this_process_and_others_under_any_name(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    claim = FILES.lock_dir(folder)
    for name in (folder, link, tmp_path / "folder" / ".." / "folder"):
        with pytest.raises(StoreLockedError, match="stop that broker, or give this one a directory of its own"):
            FILES.lock_dir(name)
    code = "import fcntl,os,sys; fcntl.flock(os.open(sys.argv[1],os.O_RDONLY),fcntl.LOCK_EX|fcntl.LOCK_NB)"
    other = [sys.executable, "-c", code, str(link)]
    assert b"BlockingIOError" in subprocess.run(other, capture_output=True, check=False).stderr
    claim.release()
    claim.release()
    assert subprocess.run(other, check=False).returncode == 0
    FILES.lock_dir(link).release()
    assert list(folder.iterdir()) == []


def test_a_forked_child_does_not_keep_the_claim_of_its_parent(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from orbitmq.store.files import OsFiles
claim = OsFiles().lock_dir(Path(sys.argv[1]))
if os.fork():
    os._exit(0)
print("forked", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"forked\n"
        parent.wait()
        FILES.lock_dir(tmp_path).release()


def test_a_file_system_without_locks_of_directories_still_refuses_a_second_claim_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(descriptor: int, how: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr("orbitmq.store.files.fcntl.flock", no_locks)
    claim = FILES.lock_dir(tmp_path)
    assert "cannot be locked (Bad file descriptor): do not let two brokers use it" in caplog.text
    with pytest.raises(StoreLockedError):
        FILES.lock_dir(tmp_path)
    claim.release()


def test_facts_about_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = FILES.disk_usage(tmp_path)
    assert usage.total_bytes >= usage.free_bytes > 0
    (tmp_path / "f").write_bytes(b"123")
    assert FILES.file_size(tmp_path / "f") == 3
    assert FILES.modified_ms(tmp_path / "f") == (tmp_path / "f").stat().st_mtime_ns // 1_000_000

    def unreadable(self: Path) -> str:
        raise OSError(errno.ENOENT, "no such file")

    assert FILES.boot_id() == FILES.boot_id()
    monkeypatch.setattr(Path, "read_text", unreadable)
    assert FILES.boot_id() != FILES.boot_id(), "an unknown boot is never the same one"


COUNTER = """
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
static void count(int fd, const char *name) {
    struct stat found;
    FILE *out = fopen(getenv("SYNCS"), "a");
    fstat(fd, &found);
    fprintf(out, "%s %lu\\n", name, (unsigned long)found.st_ino);
    fclose(out);
}
int fdatasync(int fd) { count(fd, "fdatasync"); return 0; }
int fsync(int fd) { count(fd, "fsync"); return 0; }
"""
SYNCING = """
import sys
from pathlib import Path
from orbitmq.store.files import OsFiles
root, files = Path(sys.argv[1]), OsFiles()
file = files.open(root / "written", create=True)
file.pwrite(b"x", 0)
file.datasync()
files.sync_dir(root)
"""


def test_syncs_reach_the_system(tmp_path: Path) -> None:
    """Everything else counts calls of ours: here a library between Python and the system sees what is really asked of it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, library, syncs = tmp_path / "count.c", tmp_path / "count.so", tmp_path / "syncs"
    source.write_text(COUNTER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    store = tmp_path / "store"
    store.mkdir()
    environment = os.environ | {"LD_PRELOAD": str(library), "SYNCS": str(syncs)}
    subprocess.run([sys.executable, "-c", SYNCING, str(store)], env=environment, check=True)
    file, directory = (store / "written").stat().st_ino, store.stat().st_ino
    assert syncs.read_text().splitlines() == [f"fdatasync {file}", f"fsync {directory}"]


def test_a_claim_that_is_forgotten_while_another_is_made_ends(tmp_path: Path) -> None:
    """The collector may meet a forgotten lock on the thread that is making, or ending, another claim."""
    program = """
import sys
from pathlib import Path
from orbitmq.store.files import OsFiles, _claims
lock = OsFiles().lock_dir(Path(sys.argv[1]))
with _claims._guard:
    del lock
OsFiles().lock_dir(Path(sys.argv[1])).release()
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)
