"""Users of a real server: changed while it runs, there after a kill, read by nobody without the key."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from server_process import ServedProcess

from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.signing import Credentials

ROOT, SHOP = Credentials("root", "secret-of-root"), Credentials("shop", "secret-of-the-shop")
NEW_SECRET = "secret-of-the-shop-from-now-on"


def ask(
    server: ServedProcess, who: Credentials, code: RequestCode, body: object = None, **fields: str
) -> tuple[int, str]:
    """Code and remark, of an error, or body of the answer to a new connection."""
    content = b"" if body is None else json.dumps(body).encode()
    answer = server.client().call(code, who.signed(fields, content), content)
    return answer.code, answer.remark or "" if answer.code else bytes(answer.body).decode()


def start(directory: Path, key: Path | None) -> ServedProcess:
    config = directory / "broker.conf"
    root = json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key})
    lines = ["authenticationEnabled=true", "authorizationEnabled=true", f"initAuthenticationUser={root}"]
    config.write_text("\n".join([*lines, *([] if key is None else [f"accessKeyFile={key}"])]))
    config.chmod(0o600)
    return ServedProcess(directory / "server", options=("--config", config))


def test_what_was_answered_survives_a_kill_and_the_disk_tells_no_password(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(base64.b64encode(b"k" * 32))
    key.chmod(0o600)
    entry = {"resource": "Cluster:*", "actions": ["Get"], "decision": "Allow"}
    policies = {"policies": [{"entries": [entry]}]}

    server = start(tmp_path, None)
    look = RequestCode.GET_BROKER_RUNTIME_INFO
    assert ask(server, SHOP, look)[0] == ResponseCode.NO_PERMISSION
    user = {"password": SHOP.secret_key}
    assert ask(server, ROOT, RequestCode.AUTH_CREATE_USER, user, username="shop") == (0, "")
    assert ask(server, SHOP, look)[0] == ResponseCode.NO_PERMISSION
    assert ask(server, ROOT, RequestCode.AUTH_CREATE_ACL, policies, subject="User:shop") == (0, "")
    assert ask(server, SHOP, look)[0] == 0
    table = server.data / "config" / "orbitmq-access.json"
    assert SHOP.secret_key in table.read_text()
    assert table.stat().st_mode & 0o777 == 0o600
    server.kill()

    server = start(tmp_path, key)
    assert ask(server, SHOP, look)[0] == 0, "it survived"
    assert ask(server, ROOT, RequestCode.AUTH_UPDATE_USER, {"password": NEW_SECRET}, username="shop") == (0, "")
    assert ask(server, SHOP, look)[0] == ResponseCode.NO_PERMISSION, (
        "the old password is worth nothing with the next request"
    )
    assert ask(server, Credentials("shop", NEW_SECRET), look)[0] == 0
    told = ask(server, Credentials("shop", NEW_SECRET), RequestCode.AUTH_LIST_USER)
    assert [user["username"] for user in json.loads(told[1])] == ["root", "shop"]
    assert "secret-of" not in told[1]
    server.kill()

    files = [path for path in server.data.rglob("*") if path.is_file() and path.stat().st_blocks]
    assert table in files
    assert [path for path in files if b"secret-of" in path.read_bytes()] == []
    log = server.log()
    assert "secret-of" not in log
    assert "user 'root' at 127.0.0.1:" in log
    assert "AUTH_UPDATE_USER username=shop; password: ****** -> ******" in log
    assert "AUTH_CREATE_ACL subject=User:shop; Custom policy on Cluster:*: none -> Allow Get" in log
