"""Spark against a server that takes nothing but TLS, and only from clients with a certificate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.worlds.certificates import Authority

import orbitmq.sync
from orbitmq.client.connect_settings import ConnectSettings
from orbitmq.spark.connect_options import connect_parts, options_of
from orbitmq.spark.pipelines import archive, replay, schedule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from server_process import ServedProcess

COUNT = 500
SECRETS = ("of the job", "hush-hush")


@pytest.fixture
def connect(tmp_path: Path) -> ConnectSettings:
    """A client certificate whose key is encrypted, and a signature that this server does not look at."""
    own = Authority(tmp_path).issue("job", password=SECRETS[0])
    for name, secret in zip(("password", "secret"), SECRETS, strict=True):
        (tmp_path / name).write_text(secret)
    return ConnectSettings(
        access_key="job",
        secret_command=f"cat {tmp_path / 'secret'}",
        tls=True,
        tls_trusted=str(tmp_path / "authority.pem"),
        tls_certificate=str(own.cert),
        tls_key=str(own.key),
        tls_password_file=str(tmp_path / "password"),
    )


@pytest.fixture
def encrypted(connect: ConnectSettings, tmp_path: Path, serve: Callable[..., ServedProcess]) -> str:
    """The address of its name server."""
    assert connect.tls_certificate is not None
    own = {"certPath": connect.tls_certificate, "keyPath": connect.tls_key, "keyPassword": SECRETS[0]}
    settings = {f"tls.{side}.{name}": value for side in ("server", "client") for name, value in own.items()}
    trust = {f"tls.{side}.trustCertPath": connect.tls_trusted for side in ("server", "client")}
    modes = {"tls.server.mode": "enforcing", "tls.server.need.client.auth": "require"}
    server = serve("encrypted", settings={**settings, **trust, **modes})
    return f"127.0.0.1:{server.name_port}"


def test_source_sink_and_pipelines_speak_tls(
    spark: SparkSession, encrypted: str, connect: ConnectSettings, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = {"nameServer": encrypted, "topic": "orders", **options_of(connect)}
    rows = spark.range(0, COUNT, 1, 4).selectExpr("concat('row ', id) AS body")
    with orbitmq.sync.connect(encrypted, options=connect_parts(connect).client_options) as mq:
        for topic in ("orders", "timed", "again"):
            mq.admin.create_topic(topic)
        rows.write.format("orbitmq").options(**options).mode("append").save()
        frame = spark.read.format("orbitmq").options(**options).load()
        assert frame.selectExpr("count(distinct body)").first()[0] == COUNT
        said = {
            name: getattr(connect, name) for name in connect.__struct_fields__ if getattr(connect, name) is not None
        }
        place = str(tmp_path / "archive")
        assert archive(spark, to=place, name_server=encrypted, topic=["orders"], **said).rows_written == COUNT
        again = replay(spark, archive=place, to="again", name_server=encrypted, **said)
        assert again.rows_written == COUNT
        due = rows.selectExpr("body", "timestamp_millis(unix_millis(now()) + 3600000) AS due")
        timed = schedule(spark, due, topic="timed", due_column="due", name_server=encrypted, **said)
        assert timed.rows_written == COUNT
        assert mq.timers.counts().pending == COUNT
    plan = frame._jdf.queryExecution().toString() + str(frame) + str(said)
    printed = "".join(capfd.readouterr())
    assert not [secret for secret in SECRETS if secret in plan + printed]
